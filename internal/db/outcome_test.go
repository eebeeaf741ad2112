// SPDX-License-Identifier: Apache-2.0

package db_test

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5/pgproto3"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/db/dbtest"
)

var (
	backendPID = db.SQL(`SELECT pg_backend_pid()`)
	more       = db.SQL(`UPDATE mailbox_usage SET messages = messages + 1 WHERE mailbox = $1`)
)

// cutPoint says where the proxy cuts a connection during a commit.
type cutPoint int

const (
	beforeCommit cutPoint = iota // COMMIT never arrives
	withCommit                   // COMMIT is on its way
	afterCommit                  // committed, and the answer gets lost
	killedBefore                 // the server ends the session before COMMIT
	killedAfter                  // the server ends the session after COMMIT, in place of the answer
	commitCuts                   // number of values
)

func (c cutPoint) String() string {
	return [...]string{"before", "with", "after", "killed before", "killed after"}[c]
}

// After a connection is lost around COMMIT, each caller gets the right result, and nothing is
// written twice.
func TestConnectionLostAroundCommit(t *testing.T) {
	for where := range commitCuts {
		t.Run(where.String(), func(t *testing.T) {
			u := dbtest.Postgres(t)
			proxy := startCutter(t, u)
			direct := dbtest.Open(t, u)
			d, err := db.Open(t.Context(), db.Options{URL: proxy.url})
			if err != nil {
				t.Fatal(err)
			}
			defer d.Close() //nolint:errcheck // nothing to lose
			key := direct.NewID()
			if err := direct.Write(t.Context(), key, &db.Mutation{Apply: func(b *db.Batch) { b.Queue(addUsage.With(key)) }}); err != nil {
				t.Fatal(err)
			}
			// Jobs of both shapes: with and without something to read last.
			count := new(int64)
			gone := errors.New("gone")
			jobs := []func() error{
				func() error {
					return d.Write(t.Context(), key, &db.Mutation{Apply: func(b *db.Batch) { b.Queue(more.With(key)) }})
				},
				func() error {
					return d.Write(t.Context(), key, &db.Mutation{
						Guard: func(b *db.Batch) { b.Queue(usage.With(key)).One(count, count).OrFail(gone) },
						Apply: func(b *db.Batch) { b.Queue(more.With(key)).OrFail(gone) },
					})
				},
				func() error {
					_, err := d.Exec(t.Context(), more.With(key))
					return err
				},
			}
			want := int64(0)
			for i, job := range jobs {
				for range 3 { // the first makes the connection and prepares
					proxy.arm(where)
					if err := job(); err != nil {
						t.Errorf("job %d: %v", i, err)
					}
					if proxy.armed.Load() != nil {
						t.Errorf("job %d: nothing was cut", i)
					}
					want++
				}
			}
			var bytes, messages int64
			if err := direct.One(t.Context(), usage.With(key), &bytes, &messages); err != nil || messages != want {
				t.Errorf("carried out %d times, want %d; %v", messages, want, err)
			}
		})
	}
}

// If the answer to COMMIT gets lost while the database is being closed, the caller does not get an
// error that says that nothing was written.
func TestConnectionLostWhileClosing(t *testing.T) {
	u := dbtest.Postgres(t)
	proxy := startCutter(t, u)
	direct := dbtest.Open(t, u)
	d, err := db.Open(t.Context(), db.Options{URL: proxy.url})
	if err != nil {
		t.Fatal(err)
	}
	id, closed := direct.NewID(), make(chan error, 1)
	err = d.Tx(t.Context(), func(tx *db.Tx) error {
		go func() { closed <- d.Close() }()
		for d.Ping(t.Context()) == nil { // until closing has begun
		}
		proxy.arm(afterCommit)
		_, err := tx.Exec(t.Context(), addAccount.With(id, "tx", "A"))
		return err
	})
	if !errors.Is(err, db.ErrCommitUnknown) || !errors.Is(err, db.ErrClosed) || !stored(t, direct, id) {
		t.Errorf("%v; stored %v", err, stored(t, direct, id))
	}
	if err := <-closed; err != nil {
		t.Error(err)
	}
}

// cutter is a proxy that forwards connections until it cuts one.
type cutter struct {
	t      *testing.T
	url    string
	server string
	kill   func(pid uint32)
	armed  atomic.Pointer[cutPoint]
}

func (c *cutter) arm(where cutPoint) { c.armed.Store(&where) }

func startCutter(t *testing.T, target string) *cutter {
	u, err := url.Parse(target)
	if err != nil {
		t.Fatal(err)
	}
	q := u.Query()
	dir, err := os.MkdirTemp("", "cut")
	if err != nil {
		t.Fatal(err)
	}
	c := &cutter{t: t, server: filepath.Join(q.Get("host"), ".s.PGSQL.5432")}
	l, err := net.Listen("unix", filepath.Join(dir, ".s.PGSQL.5432"))
	if err != nil {
		t.Fatal(err)
	}
	q.Set("host", dir)
	u.RawQuery = q.Encode()
	c.url = u.String()
	admin := connect(t, dbtest.Server(t))
	var mu sync.Mutex
	c.kill = func(pid uint32) {
		mu.Lock()
		defer mu.Unlock()
		exec(t, admin, fmt.Sprintf("SELECT pg_terminate_backend(%d, 10000)", pid))
	}
	var wg sync.WaitGroup
	t.Cleanup(func() {
		_ = l.Close()
		wg.Wait()
		_ = os.RemoveAll(dir)
	})
	wg.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			wg.Go(func() { c.pass(conn) })
		}
	})
	return c
}

// passed is a connection through the cutter.
type passed struct {
	*cutter
	client, server net.Conn
	pid            atomic.Uint32
	swallow        atomic.Bool   // answers no longer reach the client
	committed      chan struct{} // closed when a swallowed answer was seen
}

func (c *cutter) pass(client net.Conn) {
	defer client.Close() //nolint:errcheck // the other side goes as well
	server, err := net.Dial("unix", c.server)
	if err != nil {
		c.t.Error(err)
		return
	}
	defer server.Close() //nolint:errcheck // the other side goes as well
	p := &passed{cutter: c, client: client, server: server, committed: make(chan struct{})}
	var wg sync.WaitGroup
	wg.Go(p.answers)
	p.requests()
	_ = client.Close()
	_ = server.Close()
	wg.Wait()
}

// requests forwards the client's messages, and looks for COMMIT.
func (p *passed) requests() {
	from := pgproto3.NewBackend(p.client, p.client)
	start, err := from.ReceiveStartupMessage()
	if err != nil || p.send(start) != nil {
		return
	}
	commits := map[string]bool{} // statements by that text
	for {
		m, err := from.Receive()
		if err != nil {
			return
		}
		commit := false
		switch m := m.(type) {
		case *pgproto3.Parse:
			commits[m.Name] = m.Query == "COMMIT"
		case *pgproto3.Bind:
			commit = commits[m.PreparedStatement]
		case *pgproto3.Query:
			commit = m.String == "COMMIT"
		}
		if where := p.armed.Load(); commit && where != nil && p.armed.CompareAndSwap(where, nil) {
			p.cut(*where, from, m)
			return
		}
		if p.send(m) != nil {
			return
		}
	}
}

// cut cuts the connection; m is the message with COMMIT.
func (p *passed) cut(where cutPoint, from *pgproto3.Backend, m pgproto3.FrontendMessage) {
	switch where {
	case beforeCommit:
		return
	case killedBefore:
		p.kill(p.pid.Load())
		return
	}
	p.swallow.Store(true)
	for {
		if p.send(m) != nil {
			return
		}
		if _, last := m.(*pgproto3.Sync); last {
			break
		}
		var err error
		if m, err = from.Receive(); err != nil {
			p.t.Error(err)
			return
		}
	}
	if where == withCommit {
		return
	}
	<-p.committed
	if where == killedAfter {
		fatal := &pgproto3.ErrorResponse{Severity: "FATAL", SeverityUnlocalized: "FATAL", Code: "57P01",
			Message: "terminating connection due to administrator command"}
		if b, err := fatal.Encode(nil); err == nil {
			_, _ = p.client.Write(b)
		}
	}
}

func (p *passed) send(m pgproto3.FrontendMessage) error {
	b, err := m.Encode(nil)
	if err == nil {
		_, err = p.server.Write(b)
	}
	return err
}

// answers forwards the server's messages.
func (p *passed) answers() {
	from := pgproto3.NewFrontend(p.server, p.server)
	defer func() {
		if !p.swallow.Load() {
			_ = p.client.Close()
		}
	}()
	for {
		m, err := from.Receive()
		if err != nil {
			return
		}
		switch m := m.(type) {
		case *pgproto3.BackendKeyData:
			p.pid.Store(m.ProcessID)
		case *pgproto3.CommandComplete:
			if p.swallow.Load() && string(m.CommandTag) == "COMMIT" {
				close(p.committed)
			}
		}
		if p.swallow.Load() {
			continue
		}
		b, err := m.Encode(nil)
		if err == nil {
			_, err = p.client.Write(b)
		}
		if err != nil {
			return
		}
	}
}

// A session that the server ends before COMMIT is repeated.
func TestSessionKilled(t *testing.T) {
	u := dbtest.Postgres(t)
	d := dbtest.Open(t, u+"&application_name=session-killed") // other tests have sessions, too
	admin := connect(t, u)
	var pid int
	killed := 0
	killOnce := func() {
		if killed++; killed == 1 {
			exec(t, admin, fmt.Sprintf("SELECT pg_terminate_backend(%d, 10000)", pid))
		}
	}
	id := d.NewID()
	if err := d.Write(t.Context(), id, &db.Mutation{
		Guard: func(b *db.Batch) { b.Queue(backendPID.With()).One(&pid) },
		Apply: func(b *db.Batch) { killOnce(); add(id)(b) },
	}); err != nil || killed != 2 || !stored(t, d, id) {
		t.Errorf("write: %v after %d tries", err, killed)
	}
	killed, id = 0, d.NewID()
	if err := d.Tx(t.Context(), func(tx *db.Tx) error {
		if err := tx.One(t.Context(), backendPID.With(), &pid); err != nil {
			return err
		}
		killOnce()
		_, err := tx.Exec(t.Context(), addAccount.With(id, "tx", "A"))
		return err
	}); err != nil || killed != 2 || !stored(t, d, id) {
		t.Errorf("tx: %v after %d tries", err, killed)
	}
	// All sessions at once, as when the server restarts.
	exec(t, admin, `SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE application_name = 'session-killed'`)
	if !stored(t, d, id) {
		t.Error("the row is gone")
	}
}

// A deadlock between batchers is resolved, and each job is committed once.
func TestDeadlock(t *testing.T) {
	d := dbtest.Open(t, dbtest.Postgres(t))
	a, b := d.NewID(), d.NewID()
	for d.BatcherOf(a) == d.BatcherOf(b) {
		b = d.NewID()
	}
	for _, id := range []db.ID{a, b} {
		if err := d.Write(t.Context(), id, &db.Mutation{Apply: func(b *db.Batch) { b.Queue(addUsage.With(id)) }}); err != nil {
			t.Fatal(err)
		}
	}
	var both sync.WaitGroup
	both.Add(2)
	var tries atomic.Int32
	cross := func(first, second db.ID) error {
		var once sync.Once
		return d.Write(t.Context(), first, &db.Mutation{
			Guard: func(b *db.Batch) { tries.Add(1); b.Queue(more.With(first)) },
			Apply: func(b *db.Batch) {
				once.Do(both.Done)
				both.Wait() // each has its first row
				b.Queue(more.With(second))
			},
		})
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := cross(a, b); err != nil {
			t.Error(err)
		}
	})
	wg.Go(func() {
		if err := cross(b, a); err != nil {
			t.Error(err)
		}
	})
	wg.Wait()
	for _, id := range []db.ID{a, b} {
		var bytes, messages int64
		if err := d.One(t.Context(), usage.With(id), &bytes, &messages); err != nil || messages != 2 {
			t.Errorf("%d messages, %v; want 2", messages, err)
		}
	}
	if tries.Load() < 3 {
		t.Error("there was no deadlock")
	}
}

var freeUsage = db.SQL(`SELECT mailbox FROM mailbox_usage WHERE mailbox = $1 {skip_locked}`)

// Jobs in a shared commit lock rows in the order of their keys, so that batchers and nodes don't
// deadlock.
func TestRowsAreTakenInOrder(t *testing.T) {
	d := dbtest.Open(t, dbtest.Postgres(t))
	var ids []db.ID
	for range 3 {
		ids = append(ids, d.NewID())
		dbtest.Exec(t, d, addUsage.With(ids[len(ids)-1]))
	}
	take := func(ids ...db.ID) *db.Mutation {
		return &db.Mutation{Guard: func(b *db.Batch) {
			for _, id := range ids {
				b.Queue(more.With(id)).WithLockKey(id)
			}
		}}
	}
	told := make(chan []error, 1)
	if err := d.Tx(t.Context(), func(tx *db.Tx) error {
		if _, err := tx.Exec(t.Context(), more.With(ids[1])); err != nil {
			return err
		}
		go func() { told <- d.Batch(ids[:2], []*db.Mutation{take(ids[0], ids[2]), take(ids[1])}) }()
		if err := dbtest.AwaitBlocked(t.Context(), d, tx, "%mailbox_usage%"); err != nil {
			return err
		}
		return d.One(t.Context(), freeUsage.With(ids[2]), new(db.ID))
	}); err != nil {
		t.Errorf("the third row was taken before the second: %v", err)
	}
	for _, err := range <-told {
		if err != nil {
			t.Error(err)
		}
	}
}
