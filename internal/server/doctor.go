// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/mailstead/mailstead/internal/address"
	"github.com/mailstead/mailstead/internal/cert"
	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/dns"
	"github.com/mailstead/mailstead/internal/doctor"
	"github.com/mailstead/mailstead/internal/domain"
	"github.com/mailstead/mailstead/internal/lease"
	"github.com/mailstead/mailstead/internal/route"
	"github.com/mailstead/mailstead/internal/secret"
)

// DoctorOptions selects additional checks of RunDoctor.
type DoctorOptions struct {
	Deep  bool   // check all stored data, not a sample: reads the whole database
	Probe string // domain whose mail hosts to connect to; "" for none
}

// deepTimeout is how long a deep check may take.
const deepTimeout = 12 * time.Hour

// minOpenFiles suffices for 10,000 idle mail clients and everything else.
const minOpenFiles = 16_384

// diagnosis is the state of one run of RunDoctor.
type diagnosis struct {
	Config
	DoctorOptions
	holder   string // holder of leases, from the data folder's lock file
	ownerUID int    // owner of the data folder
	running  bool   // by its lock or, where that can't be read, by its lease
	// runsElsewhere says that no service runs on the data folder, but one with this host
	// name answers: in a container, or on another folder.
	runsElsewhere bool
	pid           int  // process that has the lock; 0 if none or unknown
	lockKnown     bool // whether the lock's state could be read
	db            *doctor.Database
	hostKey       *domain.HostKey // nil if there is none yet, or it can't be read
	dns           *dns.Resolver
	router        *route.Router
}

// RunDoctor checks the service with these settings, running or stopped, without changing
// anything. If the settings are invalid it only reports that.
func RunDoctor(ctx context.Context, c Config, e DoctorOptions) []doctor.Finding {
	x := &diagnosis{Config: c, DoctorOptions: e, ownerUID: os.Geteuid()}
	if err := x.prepare(); err != nil {
		return doctor.Run(ctx, []doctor.Check{{Name: "settings", Func: func(_ context.Context, r *doctor.Report) {
			r.Fail("Correct it in the flags, the variables MAILSTEAD_… or the file of --config.", "mailstead serve does not start: %v", err)
		}}})
	}
	checks := []doctor.Check{{Name: "settings", Func: func(_ context.Context, r *doctor.Report) {
		if x.Postmaster == "" {
			r.Fail("Set it as a flag, as the variable MAILSTEAD_POSTMASTER, or in the file of --config.", "mailstead serve does not start: %v", errNoPostmaster)
			return
		}
		r.OK("those of %s, node %s", x.Host, x.Node)
	}}}
	of := x.openDatabase(ctx)
	if x.db != nil {
		defer x.db.Close() //nolint:errcheck // only read
	}
	openListeners := x.listeners()
	smtp := doctor.Listener{Name: "smtp", Port: x.PortBase + standardPorts["smtp"]}
	if !x.running && x.PortBase != AnyPort && openListeners.IsRunning(ctx, smtp) {
		x.runsElsewhere, openListeners.Running = true, true
		if x.db != nil {
			x.db.Running = x.liveLease() != nil
		}
	}
	checks = append(checks, x.machineChecks()...)
	checks = append(checks, of...)
	checks = append(checks, x.networkChecks(openListeners)...)
	return doctor.Run(ctx, checks)
}

// prepare completes the settings. It returns the errors that serve returns before it changes
// anything.
func (x *diagnosis) prepare() (err error) {
	if err := x.check(); err != nil {
		return err
	}
	if x.SecretKey != "" {
		if _, err := secret.ParseKey(x.SecretKey); err != nil {
			return fmt.Errorf("--secret-key: %w", err)
		}
	}
	if x.Probe != "" {
		if x.Probe, err = address.ParseDomain(x.Probe); err != nil {
			return errors.New("--probe must be a domain, such as example.org")
		}
	}
	if _, _, ok := strings.Cut(x.TLS, ","); !ok && x.TLS != "acme" && x.TLS != "self-signed" {
		return errors.New(`--tls must be "acme", "self-signed", or CERTIFICATE.pem,KEY.pem`)
	}
	allow, err := x.privateNetworks()
	if err != nil {
		return err
	}
	roots, err := x.trustedRoots()
	if err != nil {
		return err
	}
	zones, err := x.resolverZones()
	if err != nil {
		return err
	}
	// The timeout is shorter than the service's, which may wait longer for mail.
	if x.dns, err = dns.New(dns.Config{Server: x.Resolver, Zones: zones, TrustAD: x.TrustResolver, Timeout: 4 * time.Second}); err != nil {
		return err
	}
	smart, err := x.smartHost()
	x.router = &route.Router{DNS: x.dns, HostName: x.Host, AllowNets: allow, Port: uint16(x.SMTPPort), Roots: roots, SmartHost: smart}
	return err
}

// openDatabase opens the database, determines whether the service is running, and returns the
// checks of the stored data.
func (x *diagnosis) openDatabase(ctx context.Context) []doctor.Check {
	if info, err := os.Stat(x.Data); err == nil {
		x.ownerUID = doctor.FileOwner(info)
	}
	lock := filepath.Join(x.Data, "lock")
	text, _ := os.ReadFile(lock) // without a lock file no service has run here
	x.holder = strings.TrimSpace(string(text))
	x.pid, x.lockKnown = doctor.LockHolder(lock)
	x.running = x.pid != 0

	ctx, cancel := context.WithTimeout(ctx, doctor.DefaultTimeout)
	defer cancel()
	says := func(look func(r *doctor.Report)) []doctor.Check {
		return []doctor.Check{{Name: "database", Func: func(_ context.Context, r *doctor.Report) { look(r) }}}
	}
	look, err := db.OpenInspector(ctx, db.InspectOptions{URL: x.databaseURL(), Offline: x.lockKnown && !x.running})
	if errors.Is(err, fs.ErrNotExist) && x.Database == "sqlite" {
		return says(func(r *doctor.Report) { r.OK("not there yet; mailstead serve will make it") })
	}
	var schema db.SchemaState
	d := &doctor.Database{Inspector: look, Path: filepath.Join(x.Data, "mailstead.db"), Now: time.Now}
	if err == nil {
		x.db = d
		schema, err = look.Schema(ctx)
	}
	failed := func(err error) []doctor.Check {
		if errors.Is(err, context.DeadlineExceeded) {
			err = fmt.Errorf("no answer within %s", doctor.DefaultTimeout)
		}
		return says(func(r *doctor.Report) {
			r.Fail(doctor.FixFor(err, unreadableAdvice(x.Database, x.running)), "it can't be looked at: %v", err)
		})
	}
	if err != nil {
		return failed(err)
	}
	checks := says(func(r *doctor.Report) { d.CheckSchema(r, schema) })
	if schema.Version == 0 || schema.Missing > 0 {
		return checks // the other checks need the tables of this release
	}
	if d.Nodes, err = lease.Nodes(ctx, look); err != nil {
		return failed(err)
	}
	if !x.lockKnown {
		x.running = x.liveLease() != nil
	}
	d.Running = x.running
	if x.hostKey, err = domain.ReadHostKey(ctx, look); err != nil {
		return failed(err)
	}
	return append(checks, x.storageChecks(d)...)
}

// unreadableAdvice returns what to do about a database that can't be read.
func unreadableAdvice(database string, running bool) string {
	switch {
	case database != "sqlite":
		return "Look whether PostgreSQL runs and is reached from here, and whether name and password in --database are right."
	case running:
		return "Look at the disk, and whose the files are; run doctor once more, as a service that starts or ends just now may be the reason."
	}
	return "Start mailstead serve, which puts right what a crash has left; if that fails, restore the database from a backup."
}

// liveLease returns the unexpired lease of a process on the data folder, or nil.
func (x *diagnosis) liveLease() *lease.NodeState {
	if x.db == nil || x.holder == "" {
		return nil
	}
	for i, n := range x.db.Nodes {
		if n.Live && n.Holder == x.holder {
			return &x.db.Nodes[i]
		}
	}
	return nil
}

// storageChecks returns the checks of the database and of the files that belong to it.
func (x *diagnosis) storageChecks(d *doctor.Database) []doctor.Check {
	k := &doctor.Data{Database: d, Blobs: x.Blobs, Deep: x.Deep, Host: x.Host, Postmaster: x.Postmaster}
	if x.SecretKey != "" {
		k.Key, k.KeyErr = secret.ParseKey(x.SecretKey)
	} else {
		k.Key, k.KeyErr = secret.ReadKey(filepath.Join(x.Data, "secret.key"))
	}
	limit := time.Duration(0)
	if x.Deep {
		limit = deepTimeout
	}
	var checks []doctor.Check
	if d.Engine() == db.SQLite {
		checks = append(checks, doctor.Check{Name: "write-ahead log", Func: d.CheckWAL})
		if x.Deep {
			checks = append(checks, doctor.Check{Name: "database file", Func: d.CheckIntegrity, Timeout: limit})
		}
	} else {
		checks = append(checks, doctor.Check{Name: "database server", Func: d.CheckPostgres})
	}
	return append(checks,
		doctor.Check{Name: "clock", Func: d.CheckClock},
		doctor.Check{Name: "nodes", Func: d.CheckNodes},
		doctor.Check{Name: "secret key", Func: k.CheckKey, Timeout: limit},
		doctor.Check{Name: "large messages", Func: k.CheckFiles, Timeout: limit},
		doctor.Check{Name: "domains", Func: k.CheckDomains},
		doctor.Check{Name: "postmaster", Func: k.CheckPostmaster},
		doctor.Check{Name: "queue", Func: k.CheckQueue},
		doctor.Check{Name: "events", Func: k.CheckEvents},
		doctor.Check{Name: "webhooks", Func: k.CheckWebhooks},
	)
}

// machineChecks returns the checks of this machine.
func (x *diagnosis) machineChecks() []doctor.Check {
	folder := doctor.DataDir{Path: x.Data, SQLite: x.Database == "sqlite", HasKey: x.SecretKey == "", HasCA: x.TLS == "self-signed"}
	checks := []doctor.Check{
		{Name: "service", Func: func(_ context.Context, r *doctor.Report) {
			switch t := x.liveLease(); {
			case x.pid != 0:
				r.OK("runs, as process %d", x.pid)
			case x.running:
				r.OK("runs, as node %s", t.Name)
			case !x.lockKnown && t == nil:
				r.OK("whether it runs can't be told from here")
			case x.runsElsewhere && t == nil:
				r.Warn("Look whether --data is the folder of that one.", "a service named %s runs, but not on the data folder %s", x.Host, x.Data)
			case x.runsElsewhere:
				r.OK("runs where its process can't be seen from, as in a container, as node %s", t.Name)
			case t != nil:
				r.OK("stopped; node %s was there a moment ago", t.Name)
			default:
				r.OK("stopped")
			}
		}},
	}
	if x.pid != 0 {
		checks = append(checks, doctor.Check{Name: "open files", Func: doctor.OpenFiles{PID: x.pid, Required: minOpenFiles}.Check})
	}
	checks = append(checks,
		doctor.Check{Name: "data folder", Func: folder.Check},
		doctor.Check{Name: "disk", Func: doctor.Disk{Path: x.Data, Space: doctor.ReadDiskSpace}.Check},
	)
	if !doctor.SameDisk(x.Data, x.Blobs) {
		checks = append(checks, doctor.Check{Name: "disk", Func: doctor.Disk{Path: x.Blobs, Space: doctor.ReadDiskSpace}.Check})
	}
	return checks
}

// networkChecks returns the checks of DNS, of the listeners and of remote servers.
func (x *diagnosis) networkChecks(openListeners doctor.Listeners) []doctor.Check {
	names := doctor.HostDNS{Host: x.Host, DNS: x.dns, TrustDNSSEC: x.TrustResolver, Relayed: x.usesSmartHost(), MachineAddrs: doctor.MachineAddrs, Key: x.hostKey}
	shown := doctor.Certificate{Kind: x.TLS, Host: x.Host, Roots: x.router.Roots, Now: time.Now}
	if x.running {
		shown.RunningSince = time.Now()
		if t := x.liveLease(); t != nil {
			shown.RunningSince = t.LeaseID.Time()
		}
	}
	switch x.TLS {
	case "acme":
		shown.Pair = cert.ACMEPair(filepath.Join(x.Data, "acme"), x.ACMEDirectory, x.Host)
	case "self-signed":
		shown.Pair = cert.SelfSignedPair(x.Data)
	default:
		shown.Kind = "files"
		shown.Pair.CertFile, shown.Pair.KeyFile, _ = strings.Cut(x.TLS, ",")
	}
	checks := []doctor.Check{
		{Name: "resolver", Func: names.CheckResolver},
		{Name: "host name", Func: names.CheckHost},
		{Name: "reverse name", Func: names.CheckReverse},
		{Name: "DNS records", Func: names.CheckRecords, Timeout: 3 * doctor.DefaultTimeout},
		{Name: "certificate", Func: shown.Check},
	}
	if x.running {
		openListeners.Certificate, _, _ = shown.Pair.Load() // the certificate's own check reports errors
	}
	checks = append(checks, x.listenerChecks(openListeners)...)
	return append(checks, x.remoteChecks()...)
}

func (x *diagnosis) listeners() doctor.Listeners {
	bind, _ := netip.ParseAddr(x.Bind)                       // check has validated it
	proxies, _ := parsePrefixes("--proxy-from", x.ProxyFrom) // as above
	return doctor.Listeners{Bind: bind, Host: x.Host, Running: x.running, ProxyNetworks: proxies, MachineAddrs: doctor.MachineAddrs}
}

// listenerChecks returns the checks of the listeners.
func (x *diagnosis) listenerChecks(d doctor.Listeners) []doctor.Check {
	if x.PortBase == AnyPort {
		return nil // the ports are unknown
	}
	var all []doctor.Listener
	for _, name := range []string{"smtp", "submission", "submissions", "imap", "imaps", "http", "https"} {
		all = append(all, doctor.Listener{Name: name, Port: x.PortBase + standardPorts[name]})
	}
	checks := []doctor.Check{{Name: "listening address", Func: d.CheckBind(all, x.ownerUID)}}
	for _, listener := range all {
		checks = append(checks, doctor.Check{Name: listener.Name, Func: d.Check(listener)})
	}
	return checks
}

// remoteChecks returns the checks of the hosts that the service queries or sends mail to.
func (x *diagnosis) remoteChecks() (checks []doctor.Check) {
	out := doctor.Outgoing{Router: x.router, EHLOName: x.Host}
	direct := *x.router
	direct.SmartHost = nil
	switch {
	case x.router.SmartHost != nil:
		checks = append(checks, doctor.Check{Name: "relay", Func: out.CheckRelay, Timeout: 3 * doctor.DefaultTimeout})
	case x.Probe == "":
		checks = append(checks, doctor.Check{Name: "mail to others", Func: func(_ context.Context, r *doctor.Report) {
			r.OK("goes to the hosts that MX records name; --probe DOMAIN tries whether port %d is open to them", x.SMTPPort)
		}})
	}
	if x.Probe != "" {
		out.Router = &direct
		checks = append(checks, doctor.Check{Name: "mail to " + x.Probe, Func: out.CheckProbe(x.Probe), Timeout: 3 * doctor.DefaultTimeout})
	}
	filters, err := x.newSpamFilter(nil, nil)
	if err != nil {
		return checks // check has reported it
	}
	if filters.Rspamd != nil {
		checks = append(checks, doctor.Check{Name: "rspamd", Func: doctor.CheckRspamd(filters.Rspamd, filters.FailClosed)})
	}
	if filters.Clamav != nil {
		checks = append(checks, doctor.Check{Name: "clamd", Func: doctor.CheckClamd(filters.Clamav, filters.FailClosed)})
	}
	return checks
}
