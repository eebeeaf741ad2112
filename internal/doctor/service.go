// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/mailstead/mailstead/internal/datadir"
	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/dns"
	"github.com/mailstead/mailstead/internal/domain"
	"github.com/mailstead/mailstead/internal/lease"
	"github.com/mailstead/mailstead/internal/route"
	"github.com/mailstead/mailstead/internal/spam"
)

// deepTimeout is how long a deep check may take.
const deepTimeout = 12 * time.Hour

// minOpenFiles suffices for 10,000 idle mail clients and everything else.
const minOpenFiles = 16_384

// Service describes a service by its settings.
type Service struct {
	Host, Postmaster string
	Data, Blobs      string // folders
	SQLite           bool
	Database         string // URL for db.Open
	SecretKey        string // "" if it is in the data folder
	Certificate      Certificate
	Bind             netip.Addr
	Listeners        []Listener // SMTP first; none if the ports are unknown
	ProxyNetworks    []netip.Prefix
	Resolver         *dns.Resolver
	TrustDNSSEC      bool
	Router           *route.Router
	Filter           *spam.Filter

	Deep  bool   // check all stored data, not a sample: reads the whole database
	Probe string // domain whose mail hosts to connect to; "" for none
}

// diagnosis is the state of one run of Diagnose.
type diagnosis struct {
	Service
	holder   string // holder of leases, from the data folder's lock file
	ownerUID int    // owner of the data folder
	running  bool   // by its lock or, where that can't be read, by its lease
	// runsElsewhere says that no service runs on the data folder, but one with this host
	// name answers: in a container, or on another folder.
	runsElsewhere bool
	pid           int  // process that has the lock; 0 if none or unknown
	lockKnown     bool // whether the lock's state could be read
	db            *Database
	hostKey       *domain.HostDKIMKey // nil if there is none yet, or it can't be read
}

// Diagnose checks a service, running or stopped, without changing anything.
func Diagnose(ctx context.Context, s Service) []Finding {
	x := &diagnosis{Service: s, ownerUID: os.Geteuid()}
	stored := x.openDatabase(ctx)
	if x.db != nil {
		defer x.db.Close() //nolint:errcheck // only read
	}
	openListeners := Listeners{Bind: x.Bind, Host: x.Host, Running: x.running, ProxyNetworks: x.ProxyNetworks, MachineAddrs: MachineAddrs}
	if !x.running && len(x.Listeners) > 0 && openListeners.IsRunning(ctx, x.Listeners[0]) {
		x.runsElsewhere, openListeners.Running = true, true
		if x.db != nil {
			x.db.Running = x.liveLease() != nil
		}
	}
	return Run(ctx, slices.Concat(x.processAndDiskChecks(), stored, x.networkChecks(openListeners)))
}

// openDatabase opens the database, determines whether the service is running, and returns the
// checks of the stored data.
func (x *diagnosis) openDatabase(ctx context.Context) []Check {
	if info, err := os.Stat(x.Data); err == nil {
		x.ownerUID = FileOwner(info)
	}
	lock := filepath.Join(x.Data, datadir.LockFile)
	text, _ := os.ReadFile(lock) // without a lock file no service has run here
	x.holder = strings.TrimSpace(string(text))
	x.pid, x.lockKnown = LockHolder(lock)
	x.running = x.pid != 0

	ctx, cancel := context.WithTimeout(ctx, DefaultTimeout)
	defer cancel()
	says := func(look func(r *Report)) []Check {
		return []Check{{Name: "database", Func: func(_ context.Context, r *Report) { look(r) }}}
	}
	look, err := db.OpenInspector(ctx, db.InspectOptions{URL: x.Database, Offline: x.lockKnown && !x.running})
	if errors.Is(err, fs.ErrNotExist) && x.SQLite {
		return says(func(r *Report) { r.OK("not there yet; mailstead serve will make it") })
	}
	var schema db.SchemaState
	d := &Database{Inspector: look, Path: filepath.Join(x.Data, datadir.DatabaseFile), Now: time.Now}
	if err == nil {
		x.db = d
		schema, err = look.Schema(ctx)
	}
	failed := func(err error) []Check {
		if errors.Is(err, context.DeadlineExceeded) {
			err = fmt.Errorf("no answer within %s", DefaultTimeout)
		}
		return says(func(r *Report) {
			r.Fail(FixFor(err, unreadableAdvice(x.SQLite, x.running)), "it can't be looked at: %v", err)
		})
	}
	if err != nil {
		return failed(err)
	}
	checks := says(func(r *Report) { d.CheckSchema(r, schema) })
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
	if x.hostKey, err = domain.ReadHostDKIMKey(ctx, look); err != nil {
		return failed(err)
	}
	return append(checks, x.storageChecks(d)...)
}

// unreadableAdvice returns what to do about a database that can't be read.
func unreadableAdvice(sqlite, running bool) string {
	switch {
	case !sqlite:
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
func (x *diagnosis) storageChecks(d *Database) []Check {
	k := &Data{Database: d, Blobs: x.Blobs, Deep: x.Deep, Host: x.Host, Postmaster: x.Postmaster}
	k.Key, k.KeyErr = datadir.ReadKey(x.Data, x.SecretKey)
	limit := time.Duration(0)
	if x.Deep {
		limit = deepTimeout
	}
	var checks []Check
	if d.Engine() == db.SQLite {
		checks = append(checks, Check{Name: "write-ahead log", Func: d.CheckWAL})
		if x.Deep {
			checks = append(checks, Check{Name: "database file", Func: d.CheckIntegrity, Timeout: limit})
		}
	} else {
		checks = append(checks, Check{Name: "database server", Func: d.CheckPostgres})
	}
	return append(checks,
		Check{Name: "clock", Func: d.CheckClock},
		Check{Name: "nodes", Func: d.CheckNodes},
		Check{Name: "secret key", Func: k.CheckSecretKey, Timeout: limit},
		Check{Name: "large messages", Func: k.CheckBlobFiles, Timeout: limit},
		Check{Name: "domains", Func: k.CheckDomains},
		Check{Name: "postmaster", Func: k.CheckPostmaster},
		Check{Name: "queue", Func: k.CheckQueue},
		Check{Name: "events", Func: k.CheckEvents},
		Check{Name: "webhooks", Func: k.CheckWebhooks},
	)
}

// processAndDiskChecks returns the checks of this machine.
func (x *diagnosis) processAndDiskChecks() []Check {
	folder := DataDir{Path: x.Data, SQLite: x.SQLite, HasKey: x.SecretKey == "", HasCA: x.Certificate.Kind == "self-signed"}
	checks := []Check{
		{Name: "service", Func: func(_ context.Context, r *Report) {
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
		checks = append(checks, Check{Name: "open files", Func: OpenFiles{PID: x.pid, Required: minOpenFiles}.Check})
	}
	checks = append(checks,
		Check{Name: "data folder", Func: folder.Check},
		Check{Name: "disk", Func: Disk{Path: x.Data, Space: ReadDiskSpace}.Check},
	)
	if !SameDisk(x.Data, x.Blobs) {
		checks = append(checks, Check{Name: "disk", Func: Disk{Path: x.Blobs, Space: ReadDiskSpace}.Check})
	}
	return checks
}

// networkChecks returns the checks of DNS, of the listeners and of remote servers.
func (x *diagnosis) networkChecks(d Listeners) []Check {
	names := HostDNS{Host: x.Host, DNS: x.Resolver, TrustDNSSEC: x.TrustDNSSEC, Relayed: x.Router.SmartHost != nil, MachineAddrs: MachineAddrs, Key: x.hostKey}
	shown := x.Certificate
	if x.running {
		shown.RunningSince = time.Now()
		if t := x.liveLease(); t != nil {
			shown.RunningSince = t.LeaseID.Time()
		}
		d.Certificate, _, _ = shown.Pair.LoadChain() // the certificate's own check reports errors
	}
	checks := []Check{
		{Name: "resolver", Func: names.CheckResolver},
		{Name: "host name", Func: names.CheckHost},
		{Name: "reverse name", Func: names.CheckReverse},
		{Name: "DNS records", Func: names.CheckRecords, Timeout: 3 * DefaultTimeout},
		{Name: "certificate", Func: shown.Check},
	}
	if len(x.Listeners) > 0 {
		checks = append(checks, Check{Name: "listening address", Func: d.CheckBind(x.Listeners, x.ownerUID)})
	}
	for _, l := range x.Listeners {
		checks = append(checks, Check{Name: l.Name, Func: d.Check(l)})
	}
	return append(checks, x.remoteChecks()...)
}

// remoteChecks returns the checks of the hosts that the service queries or sends mail to.
func (x *diagnosis) remoteChecks() (checks []Check) {
	out := Outgoing{Router: x.Router, EHLOName: x.Host}
	direct := *x.Router
	direct.SmartHost = nil
	switch {
	case x.Router.SmartHost != nil:
		checks = append(checks, Check{Name: "relay", Func: out.CheckRelay, Timeout: 3 * DefaultTimeout})
	case x.Probe == "":
		checks = append(checks, Check{Name: "mail to others", Func: func(_ context.Context, r *Report) {
			r.OK("goes to the hosts that MX records name; --probe DOMAIN tries whether port %d is open to them", x.Router.Port)
		}})
	}
	if x.Probe != "" {
		out.Router = &direct
		checks = append(checks, Check{Name: "mail to " + x.Probe, Func: out.CheckProbe(x.Probe), Timeout: 3 * DefaultTimeout})
	}
	if x.Filter.Rspamd != nil {
		checks = append(checks, Check{Name: "rspamd", Func: CheckRspamd(x.Filter.Rspamd, x.Filter.FailClosed)})
	}
	if x.Filter.Clamav != nil {
		checks = append(checks, Check{Name: "clamd", Func: CheckClamd(x.Filter.Clamav, x.Filter.FailClosed)})
	}
	return checks
}
