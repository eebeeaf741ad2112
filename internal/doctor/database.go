// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"errors"
	"os"
	"strings"
	"time"

	"github.com/mailstead/mailstead/internal/bytesize"
	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/lease"
)

// Database checks the database of a service.
type Database struct {
	*db.Inspector
	Path    string // of the SQLite file
	Running bool   // a service uses the data directory
	Now     func() time.Time
	Nodes   []lease.NodeState // according to the database
}

// CheckSchema checks that this program supports the database's schema.
func (d *Database) CheckSchema(r *Report, s db.SchemaState) {
	switch {
	case s.Version == 0:
		r.OK("%s (%s) is empty; mailstead serve will make its tables", d.Name(), d.Engine())
	case s.Version > s.Latest:
		r.Fail("Use the release that this database was last used with, or a newer one.",
			"the schema is that of a newer release: version %d, of which this program knows %d", s.Version, s.Latest)
	case s.Missing > 0:
		r.Warn("Make a backup, then start mailstead serve, which brings it up to date. What the tables hold was not looked at.",
			"the schema is that of an older release: version %d of %d", s.Version, s.Latest)
	default:
		r.OK("%s (%s) answers; schema version %d", d.Name(), d.Engine(), s.Version)
	}
}

// CheckWAL checks the size of SQLite's write-ahead log.
func (d *Database) CheckWAL(_ context.Context, r *Report) {
	info, err := os.Stat(d.Path + "-wal")
	switch {
	case errors.Is(err, os.ErrNotExist):
		r.OK("%s-wal is not there, as after an orderly end", d.Path)
	case err != nil:
		r.Fail("Look at the disk.", "%v", err)
	case info.Size() >= db.WALWarnSize():
		r.Warn("If the log of the service says that something holds a read transaction open, such as a sqlite3 or a backup, end that. A restart makes the file small again.",
			"%s-wal has %s: something reads without an end, or wrote very much at once", d.Path, bytesize.Format(info.Size()))
	default:
		r.OK("%s-wal has %s", d.Path, bytesize.Format(info.Size()))
	}
}

// CheckIntegrity lets SQLite verify its whole file.
func (d *Database) CheckIntegrity(ctx context.Context, r *Report) {
	faults, err := d.QuickCheck(ctx)
	if err != nil {
		faults = append(faults, err.Error())
	}
	switch {
	case ctx.Err() != nil:
		r.Warn("Try again when the disk has less to do.", "%s could not be read whole in time", d.Path)
	case len(faults) > 0:
		r.Fail("Stop the service, keep a copy of the file, and restore the database from a backup; look at the disk and the memory of this machine.",
			"%s is damaged or can't be read: %s", d.Path, strings.Join(faults, "; "))
	default:
		r.OK("%s is sound", d.Path)
	}
}

// nodeConnections is the number of connections per node.
const nodeConnections = 24

// CheckPostgres checks the server's settings and free capacity.
func (d *Database) CheckPostgres(ctx context.Context, r *Report) {
	s, err := d.Postgres(ctx)
	if err != nil {
		r.Fail("Look at the server's log.", "the server did not tell how it is set: %v", err)
		return
	}
	d.ReportPostgres(r, s)
}

// ReportPostgres reports problems with the server's state.
func (d *Database) ReportPostgres(r *Report, s db.PostgresState) {
	if !s.Fsync {
		r.Fail("Set fsync = on in postgresql.conf and restart the server.", "fsync is off: mail that was accepted is lost when the machine goes down")
	}
	if s.SynchronousCommit == "off" {
		r.Fail("Take synchronous_commit=off out of the URL of --database.", "synchronous_commit is off: mail that was accepted may be lost")
	}
	if !s.FullPageWrites {
		r.Warn("Set full_page_writes = on, unless the file system writes pages whole.", "full_page_writes is off: a crash of the machine may damage the database")
	}
	if s.Standby {
		r.Fail("Let --database name the primary, by its address or with several hosts and target_session_attrs=read-write.", "the server is a standby, which takes no writes")
	}
	left, need := s.MaxConnections-s.Reserved-s.InUse, nodeConnections
	if d.Running {
		need = nodeConnections / 4
	}
	if left < need {
		r.Warn("Raise max_connections, or end what holds connections: a node takes up to 24.",
			"%d of %d connections left", max(left, 0), s.MaxConnections)
	}
	if r.worst() == OK {
		r.OK("PostgreSQL %s, durable, %d of %d connections left", s.Version, left, s.MaxConnections)
	}
}

// How far clocks may differ, and how far the newest row may be ahead.
const (
	warnClockSkew = 2 * time.Second
	maxClockLag   = time.Minute
)

// CheckClock compares this machine's clock with the database's, and with the times that nodes were
// last seen: ids come from the former, leases expire by the latter.
func (d *Database) CheckClock(ctx context.Context, r *Report) {
	do := "Set the clock of this machine by NTP (timedatectl set-ntp true), and that of the database's."
	asked := d.Now()
	theirs, err := d.Inspector.Now(ctx)
	answered := d.Now()
	if err != nil {
		r.Fail("Look at the log of the database.", "the database did not tell the time: %v", err)
		return
	}
	ours := asked.Add(answered.Sub(asked) / 2)
	if before := lastSeen(d.Nodes).Sub(answered); before > maxClockLag {
		r.Fail("Set the clock of this machine by NTP (timedatectl set-ntp true). If it was ahead before, and is right now, wait until that time has come.",
			"this machine's clock is %s before the newest mark in the database: ids of new rows would be made in the future", formatDuration(before))
	}
	if d.Engine() == db.Postgres {
		if off := theirs.Sub(ours).Abs(); off > lease.MaxClockSkew {
			r.Fail(do, "the clocks of this machine and of the database are %s apart: mailstead serve does not start", formatDuration(off))
		} else if off > warnClockSkew+answered.Sub(asked)/2 {
			r.Warn(do, "the clocks of this machine and of the database are %s apart: nodes that are alive may count as silent", formatDuration(off))
		}
	}
	if r.worst() == OK {
		r.OK("%s, and later than anything in the database", ours.UTC().Format(time.DateTime+"Z"))
	}
}

// CheckNodes checks which nodes work on the database.
func (d *Database) CheckNodes(_ context.Context, r *Report) {
	now := d.Now()
	var live []string
	for _, n := range d.liveNodes() {
		live = append(live, n.Name)
	}
	for _, n := range d.Nodes {
		if n.Live || n.Expires.IsZero() {
			continue
		}
		do := "Start it again, or another one: its deliveries are waiting."
		if len(live) > 0 {
			do = "The others take over its deliveries. Look at its machine, and at its log."
		}
		r.Warn(do, "node %s fell silent %s ago without an orderly end", n.Name, formatDuration(now.Sub(n.LastSeen)))
	}
	switch {
	case len(live) > 0:
		r.OK("at work: %s", strings.Join(live, ", "))
	case len(d.Nodes) == 0:
		r.OK("no node has ever worked on this database")
	case r.worst() == OK:
		r.OK("no node is at work; the last was seen %s ago", formatDuration(now.Sub(lastSeen(d.Nodes))))
	}
}

// liveNodes returns the running nodes. On SQLite, a killed process counts as running for minutes,
// but there Running says more.
func (d *Database) liveNodes() (live []lease.NodeState) {
	for _, n := range d.Nodes {
		if n.Live && (d.Running || d.Engine() == db.Postgres) {
			live = append(live, n)
		}
	}
	return live
}

func lastSeen(nodes []lease.NodeState) (last time.Time) {
	for _, n := range nodes {
		if n.LastSeen.After(last) {
			last = n.LastSeen
		}
	}
	return last
}
