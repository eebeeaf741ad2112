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
	"github.com/mailstead/mailstead/internal/route"
	"github.com/mailstead/mailstead/internal/secret"
)

// Examination says what Examine looks at beside what it always does.
type Examination struct {
	Deep  bool   // everything that is kept, not a sample: this reads the whole database
	Probe string // a domain to whose mail hosts a connection is tried; "" for none
}

// deepPatience is how long reading everything may take.
const deepPatience = 12 * time.Hour

// enoughFiles is for 10,000 mail programs that idle, and what else there is.
const enoughFiles = 16_384

// examined is a service that is being looked at.
type examined struct {
	Config
	Examination
	folder  string // the holder of tenures that the data folder's lock names
	owner   int    // whose the data folder is, as a user of this machine
	running bool   // by its lock, or, where that can't be seen, by its tenure
	// elsewhere says that nothing runs on the data folder, yet a service of this
	// name answers: in a container, or on another folder.
	elsewhere bool
	pid       int  // of the process that has the lock; 0: none, or not known
	known     bool // who has the lock can be told
	db        *doctor.Database
	hostKey   *domain.HostKey // nil: none yet, or not to be read
	dns       *dns.Resolver
	router    *route.Router
}

// Examine looks at the service with these settings, which runs or is stopped, and
// changes nothing. Without a way to tell what the settings mean it says only
// what is wrong with them.
func Examine(ctx context.Context, c Config, e Examination) []doctor.Finding {
	x := &examined{Config: c, Examination: e, owner: os.Geteuid()}
	if err := x.settle(); err != nil {
		return doctor.Run(ctx, []doctor.Check{{Name: "settings", Look: func(_ context.Context, r *doctor.Report) {
			r.Fail("Correct it in the flags, the variables MAILSTEAD_… or the file of --config.", "mailstead serve does not start: %v", err)
		}}})
	}
	checks := []doctor.Check{{Name: "settings", Look: func(_ context.Context, r *doctor.Report) {
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
	doors := x.doors()
	smtp := doctor.Door{Name: "smtp", Port: x.PortBase + ports["smtp"]}
	if !x.running && x.PortBase != AnyPort && doors.Answers(ctx, smtp) {
		x.elsewhere, doors.Running = true, true
		if x.db != nil {
			x.db.Here = x.tenure() != nil
		}
	}
	checks = append(checks, x.place()...)
	checks = append(checks, of...)
	checks = append(checks, x.network(doors)...)
	return doctor.Run(ctx, checks)
}

// settle completes the settings, and refuses what serve refuses before it has
// touched anything.
func (x *examined) settle() (err error) {
	if err := x.check(); err != nil {
		return err
	}
	if x.SecretKey != "" {
		if _, err := secret.Parse(x.SecretKey); err != nil {
			return fmt.Errorf("--secret-key: %w", err)
		}
	}
	if x.Probe != "" {
		if x.Probe, err = address.Domain(x.Probe); err != nil {
			return errors.New("--probe must be a domain, such as example.org")
		}
	}
	if _, _, ok := strings.Cut(x.TLS, ","); !ok && x.TLS != "acme" && x.TLS != "self-signed" {
		return errors.New(`--tls must be "acme", "self-signed", or CERTIFICATE.pem,KEY.pem`)
	}
	allow, err := x.private()
	if err != nil {
		return err
	}
	roots, err := x.roots()
	if err != nil {
		return err
	}
	zones, err := x.zones()
	if err != nil {
		return err
	}
	// Shorter than for the service, which may wait for the mail's sake.
	if x.dns, err = dns.New(dns.Config{Server: x.Resolver, Zones: zones, TrustAD: x.TrustResolver, Timeout: 4 * time.Second}); err != nil {
		return err
	}
	x.router = &route.Router{DNS: x.dns, Name: x.Host, Allow: allow, Port: uint16(x.SMTPPort), Roots: roots}
	smart, err := x.relay()
	if err == nil && smart != nil {
		x.router.Smart, err = route.ParseSmartHost(smart)
	}
	return err
}

// openDatabase opens the database, finds out whether the service runs, and
// returns the checks of what is kept.
func (x *examined) openDatabase(ctx context.Context) []doctor.Check {
	if info, err := os.Stat(x.Data); err == nil {
		x.owner = doctor.Owner(info)
	}
	lock := filepath.Join(x.Data, "lock")
	text, _ := os.ReadFile(lock) // without one nobody has worked here
	x.folder = strings.TrimSpace(string(text))
	x.pid, x.known = doctor.Holder(lock)
	x.running = x.pid != 0

	ctx, cancel := context.WithTimeout(ctx, doctor.Patience)
	defer cancel()
	says := func(look func(r *doctor.Report)) []doctor.Check {
		return []doctor.Check{{Name: "database", Look: func(_ context.Context, r *doctor.Report) { look(r) }}}
	}
	look, err := db.OpenLook(ctx, db.LookOptions{URL: x.databaseURL(), Alone: x.known && !x.running})
	if errors.Is(err, fs.ErrNotExist) && x.Database == "sqlite" {
		return says(func(r *doctor.Report) { r.OK("not there yet; mailstead serve will make it") })
	}
	var schema db.Schema
	d := &doctor.Database{Look: look, Path: filepath.Join(x.Data, "mailstead.db"), Now: time.Now}
	if err == nil {
		x.db = d
		schema, err = look.Schema(ctx)
	}
	failed := func(err error) []doctor.Check {
		if errors.Is(err, context.DeadlineExceeded) {
			err = fmt.Errorf("no answer within %s", doctor.Patience)
		}
		return says(func(r *doctor.Report) {
			r.Fail(doctor.Unless(err, unreadable(x.Database, x.running)), "it can't be looked at: %v", err)
		})
	}
	if err != nil {
		return failed(err)
	}
	checks := says(func(r *doctor.Report) { d.CheckSchema(r, schema) })
	if schema.Version == 0 || schema.Missing > 0 {
		return checks // the questions are about the tables of this release
	}
	if d.Nodes, err = look.Nodes(ctx); err != nil {
		return failed(err)
	}
	if !x.known {
		x.running = x.tenure() != nil
	}
	d.Here = x.running
	if x.hostKey, err = domain.ReadHostKey(ctx, look); err != nil {
		return failed(err)
	}
	return append(checks, x.kept(d)...)
}

// unreadable is what to do about a database that can't be read.
func unreadable(database string, running bool) string {
	switch {
	case database != "sqlite":
		return "Look whether PostgreSQL runs and is reached from here, and whether name and password in --database are right."
	case running:
		return "Look at the disk, and whose the files are; run doctor once more, as a service that starts or ends just now may be the reason."
	}
	return "Start mailstead serve, which puts right what a crash has left; if that fails, restore the database from a backup."
}

// tenure is the life of a process on the data folder that still counts.
func (x *examined) tenure() *db.NodeState {
	if x.db == nil || x.folder == "" {
		return nil
	}
	for i, n := range x.db.Nodes {
		if n.Live && n.Holder == x.folder {
			return &x.db.Nodes[i]
		}
	}
	return nil
}

// kept are the checks of what the database holds and what belongs to it.
func (x *examined) kept(d *doctor.Database) []doctor.Check {
	k := &doctor.Kept{Database: d, Blobs: x.Blobs, Deep: x.Deep, Host: x.Host, Postmaster: x.Postmaster}
	if x.SecretKey != "" {
		k.Key, k.KeyErr = secret.Parse(x.SecretKey)
	} else {
		k.Key, k.KeyErr = secret.Read(filepath.Join(x.Data, "secret.key"))
	}
	limit := time.Duration(0)
	if x.Deep {
		limit = deepPatience
	}
	var checks []doctor.Check
	if d.Engine() == db.SQLite {
		checks = append(checks, doctor.Check{Name: "write-ahead log", Look: d.CheckWAL})
		if x.Deep {
			checks = append(checks, doctor.Check{Name: "database file", Look: d.CheckWhole, Limit: limit})
		}
	} else {
		checks = append(checks, doctor.Check{Name: "database server", Look: d.CheckPostgres})
	}
	return append(checks,
		doctor.Check{Name: "clock", Look: d.CheckClock},
		doctor.Check{Name: "nodes", Look: d.CheckNodes},
		doctor.Check{Name: "secret key", Look: k.CheckKey, Limit: limit},
		doctor.Check{Name: "large messages", Look: k.CheckFiles, Limit: limit},
		doctor.Check{Name: "domains", Look: k.CheckDomains},
		doctor.Check{Name: "postmaster", Look: k.CheckPostmaster},
		doctor.Check{Name: "queue", Look: k.CheckQueue},
		doctor.Check{Name: "events", Look: k.CheckEvents},
		doctor.Check{Name: "webhooks", Look: k.CheckWebhooks},
	)
}

// place are the checks of this machine.
func (x *examined) place() []doctor.Check {
	folder := doctor.Folder{Path: x.Data, SQLite: x.Database == "sqlite", Key: x.SecretKey == "", Signs: x.TLS == "self-signed"}
	checks := []doctor.Check{
		{Name: "service", Look: func(_ context.Context, r *doctor.Report) {
			switch t := x.tenure(); {
			case x.pid != 0:
				r.OK("runs, as process %d", x.pid)
			case x.running:
				r.OK("runs, as node %s", t.Name)
			case !x.known && t == nil:
				r.OK("whether it runs can't be told from here")
			case x.elsewhere && t == nil:
				r.Warn("Look whether --data is the folder of that one.", "a service named %s runs, but not on the data folder %s", x.Host, x.Data)
			case x.elsewhere:
				r.OK("runs where its process can't be seen from, as in a container, as node %s", t.Name)
			case t != nil:
				r.OK("stopped; node %s was there a moment ago", t.Name)
			default:
				r.OK("stopped")
			}
		}},
	}
	if x.pid != 0 {
		checks = append(checks, doctor.Check{Name: "open files", Look: doctor.OpenFiles{PID: x.pid, Least: enoughFiles}.Check})
	}
	checks = append(checks,
		doctor.Check{Name: "data folder", Look: folder.Check},
		doctor.Check{Name: "disk", Look: doctor.Disk{Path: x.Data, Space: doctor.ReadSpace}.Check},
	)
	if !doctor.SameDisk(x.Data, x.Blobs) {
		checks = append(checks, doctor.Check{Name: "disk", Look: doctor.Disk{Path: x.Blobs, Space: doctor.ReadSpace}.Check})
	}
	return checks
}

// network are the checks of the DNS, the doors and the hosts that are asked.
func (x *examined) network(doors doctor.Doors) []doctor.Check {
	names := doctor.Names{Host: x.Host, DNS: x.dns, Trust: x.TrustResolver, Relayed: x.relayed(), Machines: doctor.MachineAddrs, Key: x.hostKey}
	shown := doctor.Certificate{Kind: x.TLS, Host: x.Host, Roots: x.router.Roots, Now: time.Now}
	if x.running {
		shown.Since = time.Now()
		if t := x.tenure(); t != nil {
			shown.Since = t.Tenure.Time()
		}
	}
	switch x.TLS {
	case "acme":
		shown.Pair = cert.ACMEPair(filepath.Join(x.Data, "acme"), x.ACMEDirectory, x.Host)
	case "self-signed":
		shown.Pair = cert.SelfSignedPair(x.Data)
	default:
		shown.Kind = "files"
		shown.Pair.Cert, shown.Pair.Key, _ = strings.Cut(x.TLS, ",")
	}
	checks := []doctor.Check{
		{Name: "resolver", Look: names.CheckResolver},
		{Name: "host name", Look: names.CheckHost},
		{Name: "reverse name", Look: names.CheckReverse},
		{Name: "DNS records", Look: names.CheckRecords, Limit: 3 * doctor.Patience},
		{Name: "certificate", Look: shown.Check},
	}
	if x.running {
		doors.Leaf, _, _ = shown.Pair.Read() // its check says what is wrong with it
	}
	checks = append(checks, x.listening(doors)...)
	return append(checks, x.others()...)
}

func (x *examined) doors() doctor.Doors {
	bind, _ := netip.ParseAddr(x.Bind)                  // check has read it
	proxies, _ := prefixes("--proxy-from", x.ProxyFrom) // as well
	return doctor.Doors{Bind: bind, Host: x.Host, Running: x.running, Proxied: proxies, Machines: doctor.MachineAddrs}
}

// listening are the checks of the doors.
func (x *examined) listening(d doctor.Doors) []doctor.Check {
	if x.PortBase == AnyPort {
		return nil // nobody knows which
	}
	var all []doctor.Door
	for _, name := range []string{"smtp", "submission", "submissions", "imap", "imaps", "http", "https"} {
		all = append(all, doctor.Door{Name: name, Port: x.PortBase + ports[name]})
	}
	checks := []doctor.Check{{Name: "listening address", Look: d.CheckBind(all, x.owner)}}
	for _, door := range all {
		checks = append(checks, doctor.Check{Name: door.Name, Look: d.Check(door)})
	}
	return checks
}

// others are the hosts that the service asks or hands mail to.
func (x *examined) others() (checks []doctor.Check) {
	out := doctor.Outgoing{Router: x.router, Name: x.Host}
	direct := *x.router
	direct.Smart = nil
	switch {
	case x.router.Smart != nil:
		checks = append(checks, doctor.Check{Name: "relay", Look: out.CheckRelay, Limit: 3 * doctor.Patience})
	case x.Probe == "":
		checks = append(checks, doctor.Check{Name: "mail to others", Look: func(_ context.Context, r *doctor.Report) {
			r.OK("goes to the hosts that MX records name; --probe DOMAIN tries whether port %d is open to them", x.SMTPPort)
		}})
	}
	if x.Probe != "" {
		out.Router = &direct
		checks = append(checks, doctor.Check{Name: "mail to " + x.Probe, Look: out.CheckProbe(x.Probe), Limit: 3 * doctor.Patience})
	}
	filters, err := x.filter()
	if err != nil {
		return checks // check has refused it
	}
	if filters.Rspamd != nil {
		checks = append(checks, doctor.Check{Name: "rspamd", Look: doctor.CheckRspamd(filters.Rspamd, filters.Closed)})
	}
	if filters.Clamav != nil {
		checks = append(checks, doctor.Check{Name: "clamd", Look: doctor.CheckClamd(filters.Clamav, filters.Closed)})
	}
	return checks
}
