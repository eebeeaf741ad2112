// SPDX-License-Identifier: Apache-2.0

package outbound_test

import (
	"bytes"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/mailstead/mailstead/internal/blob"
	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/db/dbtest"
	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/queue"
	"github.com/mailstead/mailstead/internal/server/servertest"
)

var (
	plantOld = db.SQL(`INSERT INTO outbound_message (id, account, domain, mailbox, sender, returns_to, header_from, subject, message_id,
			thread_id, metadata, utf8, eight_bit, size, blob, expires_at, created_at, ret, envid, reference)
		VALUES ($1, $2, $3, $4, '', '', 'Ann <ann@shop.example>', $5, $6, $7, '{"order":1}', FALSE, FALSE, 1, $8, $9, $9, '', '', $10)`)
	plantOldDelivery = db.SQL(`INSERT INTO delivery (message, n, account, recipient, kind, destination, state, due_at, expires_at,
			lease, attempts, sequence, code, enhanced, reply, remote_host, updated_at, hold)
		VALUES ($1, $2, $3, $4, 'to', 'x.example', $5, $6, $6, $7, $8, 0, 0, '', '', '', $9, $10)`)
	plantAttempt = db.SQL(`INSERT INTO attempt (message, n, attempt, started_at, duration_us, outcome, host, ip, tls, stage, code, enhanced, reply, transcript)
		VALUES ($1, $2, $3, 0, 0, 'deferred', '', '', '', '', 0, '', '', '')`)
	plantNotice = db.SQL(`INSERT INTO notice (id, message, n, action, recipient, orcpt, code, enhanced, reply, remote_host, next_at, expires_at, at, due_at)
		VALUES ($1, $2, 0, 'failed', '', '', 0, '', '', '', 0, 0, 0, $3)`)

	allMessages   = db.SQL(`SELECT id FROM outbound_message`)
	allDeliveries = db.SQL(`SELECT message FROM delivery`)
	allAttempts   = db.SQL(`SELECT message FROM attempt`)
	allBlobs      = db.SQL(`SELECT id FROM blob`)
	allTerms      = db.SQL(`SELECT message FROM outbound_term`)
	allTraces     = db.SQL(`SELECT id FROM outbound_trace`)
)

// old is a planted message.
type old struct {
	id, blob             db.ID
	api                  bool
	messageID, thread    string
	deliveries, attempts int
	rows                 int
	live                 bool // some delivery isn't final, or an event is still pending
	dies                 bool // when it is pruned
}

// attic is a set of planted messages of all ages and states.
type attic struct {
	t       *testing.T
	s       *servertest.Server
	account db.ID
	random  *rand.Rand
	all     []*old
}

var finals = []queue.State{queue.Delivered, queue.Bounced, queue.Complained, queue.Suppressed, queue.Failed, queue.Cancelled}

// put plants a message of a random age. Messages that ended before the given time are to be pruned.
func (a *attic) put(now, before time.Time) {
	at := now.Add(-time.Duration(a.random.Int64N(int64(60 * 24 * time.Hour))))
	m := &old{id: db.MinIDAt(at) + db.ID(a.random.IntN(4000)), api: a.random.IntN(3) > 0, dies: at.Before(before)}
	m.messageID, m.thread = fmt.Sprintf("<%s@shop.example>", m.id), fmt.Sprint("thread ", a.random.IntN(200))
	mailbox, reference := db.ID(0), int64(0)
	if !m.api {
		mailbox, m.messageID, reference = 7, fmt.Sprintf("<own-%d@client>", m.id), int64(m.id) // any number will do
	}
	b, err := a.s.Blobs.FromBytes(a.t.Context(), []byte("x"))
	if err != nil {
		a.t.Fatal(err)
	}
	m.blob = b.ID
	statements := []db.Statement{b.InsertStatement(), plantOld.With(m.id, a.account, 5, mailbox, fmt.Sprint("Order ", m.id), m.messageID, m.thread, m.blob, db.Micros(at), reference)}
	open := a.random.IntN(4) == 0 // has anything that is not final
	for n := range 1 + a.random.IntN(3) {
		state, hold := finals[a.random.IntN(len(finals))], 0
		var lease any
		if open && a.random.IntN(2) == 0 {
			state, m.live = []queue.State{queue.Scheduled, queue.Queued, queue.Deferred}[a.random.IntN(3)], true
			if a.random.IntN(3) == 0 { // an operator holds it
				lease, hold = 0, 1
			}
		}
		updated := at.Add(time.Duration(a.random.Int64N(int64(now.Sub(at))/(1+5*a.random.Int64N(2)) + 1)))
		m.dies = m.dies && !m.live && updated.Before(before)
		tries := a.random.IntN(4)
		statements = append(statements, plantOldDelivery.With(m.id, n, a.account, fmt.Sprintf("u%d@x.example", n), string(state), farAhead, lease, tries, db.Micros(updated), hold))
		for i := range tries {
			statements = append(statements, plantAttempt.With(m.id, n, 1+i))
		}
		m.deliveries++
		m.attempts += tries
	}
	if a.random.IntN(15) == 0 { // an event for it is pending
		statements = append(statements, plantNotice.With(a.s.DB.NewID(), m.id, farAhead))
		m.dies = false
	}
	dbtest.Exec(a.t, a.s.DB, statements...)
	a.all = append(a.all, m)
}

// index lets all passes see the messages up to one.
func (a *attic) index(last db.ID) {
	g := &garden{t: a.t, s: a.s, account: a.account}
	for pass := range 3 {
		g.index(pass, last, 2*time.Hour)
	}
}

// count returns the number of rows of each message.
func (a *attic) count(q *db.Query) map[db.ID]int {
	a.t.Helper()
	n := map[db.ID]int{}
	if err := a.s.DB.Each(a.t.Context(), q.With(), func(r db.Row) error {
		var id db.ID
		err := r.Scan(&id)
		n[id]++
		return err
	}); err != nil {
		a.t.Fatal(err)
	}
	return n
}

// check compares the rows in the database with the expected ones.
func (a *attic) check(when string, terms map[db.ID]int) {
	a.t.Helper()
	messages, deliveries, attempts := map[db.ID]int{}, map[db.ID]int{}, map[db.ID]int{}
	blobs, traces, found := map[db.ID]int{}, map[db.ID]int{}, map[db.ID]int{}
	for _, m := range a.all {
		if m.dies {
			traces[m.id] = 1
			continue
		}
		messages[m.id], blobs[m.blob], deliveries[m.id] = 1, 1, m.deliveries
		if m.attempts > 0 {
			attempts[m.id] = m.attempts
		}
		found[m.id] = terms[m.id]
	}
	for _, c := range []struct {
		what  string
		query *db.Query
		want  map[db.ID]int
	}{{"messages", allMessages, messages}, {"deliveries", allDeliveries, deliveries}, {"attempts", allAttempts, attempts}, {"blobs", allBlobs, blobs},
		{"traces", allTraces, traces}, {"terms", allTerms, found}} {
		if got := a.count(c.query); !maps.Equal(got, c.want) {
			a.t.Errorf("%s: %s of %d messages, want %d", when, c.what, len(got), len(c.want))
		}
	}
}

func newAttic(t *testing.T, s *servertest.Server, messages int, now, before time.Time) *attic {
	acc, err := s.Accounts.Create(t.Context(), "attic@example.com", "")
	if err != nil {
		t.Fatal(err)
	}
	a := &attic{t: t, s: s, account: acc.ID, random: rand.New(rand.NewPCG(3, 4))}
	for range messages {
		a.put(now, before)
	}
	slices.SortFunc(a.all, func(x, y *old) int { return int(min(max(x.id-y.id, -1), 1)) })
	return a
}

// prune runs all rounds and returns how many rows each commit deleted.
func (a *attic) prune(before time.Time, limit int) (commits []int) {
	a.t.Helper()
	for {
		n, err := a.s.Outbox.Prune(a.t.Context(), before, limit)
		if err != nil {
			a.t.Fatal(err)
		}
		if n == 0 {
			return commits
		}
		commits = append(commits, n)
	}
}

// Of messages in all states and of all ages, exactly the expired ones are deleted, with all their
// rows, in small commits.
func TestPrune(t *testing.T) {
	servertest.Each(t, func(t *testing.T, s *servertest.Server) {
		now := time.Now()
		before := now.Add(-30 * 24 * time.Hour)
		a := newAttic(t, s, 250, now, before)
		if n := a.prune(before, 100); len(n) > 0 {
			t.Errorf("%v rows went that no pass had seen", n)
		}
		a.index(a.all[len(a.all)-1].id)
		terms := a.count(allTerms)
		for _, m := range a.all {
			if m.rows = 3 + terms[m.id] + m.deliveries + m.attempts; terms[m.id] == 0 {
				t.Fatal("a message without terms")
			}
		}
		const limit = 60
		commits := a.prune(before, limit)
		if most := slices.Max(commits); most > limit || len(commits) < 10 {
			t.Errorf("%d commits, of up to %d rows", len(commits), most)
		}
		a.check("pruned", terms)
		if n := a.prune(before, limit); len(n) > 0 {
			t.Errorf("a second time %v rows went", n)
		}
		// A message with more rows than that goes as a whole.
		for _, m := range a.all {
			if m.dies = m.dies || !m.live; m.dies && len(a.count(allTraces)) > 0 {
				dbtest.Exec(a.t, a.s.DB, deleteNotices.With(m.id))
			}
		}
		commits = a.prune(now.Add(time.Hour), 1)
		a.check("one by one", terms)
		if slices.Min(commits) < 4 {
			t.Errorf("commits of %v rows", commits)
		}
	})
}

var deleteNotices = db.SQL(`DELETE FROM notice WHERE message = $1`)

// While messages are pruned, others are retried: a message that became live again stays whole.
func TestPruneAndRetry(t *testing.T) {
	servertest.Each(t, func(t *testing.T, s *servertest.Server) {
		now := time.Now()
		before := now.Add(-30 * 24 * time.Hour)
		a := &attic{t: t, s: s, account: s.DB.NewID(), random: rand.New(rand.NewPCG(5, 6))}
		at := now.Add(-40 * 24 * time.Hour)
		for i := range 40 {
			m := &old{id: db.MinIDAt(at.Add(time.Duration(i) * time.Minute)), deliveries: 3}
			b, err := s.Blobs.FromBytes(t.Context(), []byte("x"))
			if err != nil {
				t.Fatal(err)
			}
			m.blob = b.ID
			dbtest.Exec(a.t, a.s.DB, b.InsertStatement(), plantOld.With(m.id, a.account, 5, 0, "x", "<x>", "x", m.blob, db.Micros(at), 0))
			for n, state := range []queue.State{queue.Delivered, queue.Failed, queue.Bounced} {
				dbtest.Exec(a.t, a.s.DB, plantOldDelivery.With(m.id, n, a.account, "u@simulator.test", string(state), farAhead, nil, 0, db.Micros(at), 0))
			}
			a.all = append(a.all, m)
		}
		a.index(a.all[len(a.all)-1].id)
		retried, done := map[db.ID]bool{}, make(chan struct{})
		go func() {
			defer close(done)
			for _, m := range slices.Backward(a.all) {
				if n, err := s.Queue.Retry(t.Context(), m.id); err == nil && n == 1 {
					retried[m.id] = true
				} else if err != nil && !fault.Is(err, fault.NotFound) && !fault.Is(err, fault.Conflict) {
					t.Error(err)
				}
			}
		}()
		a.prune(before, 60)
		<-done
		a.prune(before, 60)
		messages, deliveries, blobs := a.count(allMessages), a.count(allDeliveries), a.count(allBlobs)
		for _, m := range a.all {
			want := 0
			if retried[m.id] {
				want = 1
			}
			if messages[m.id] != want || blobs[m.blob] != want || deliveries[m.id] != 3*want {
				t.Errorf("retried %v: %d messages, %d blobs, %d deliveries", retried[m.id], messages[m.id], blobs[m.blob], deliveries[m.id])
			}
		}
	})
}

// A file that a message in a folder shares outlives the sent message.
func TestPruneSharesFile(t *testing.T) {
	servertest.Each(t, func(t *testing.T, s *servertest.Server) {
		now := time.Now()
		at := now.Add(-40 * 24 * time.Hour)
		a := &attic{t: t, s: s, account: s.DB.NewID()}
		large := bytes.Repeat([]byte("0123456789abcdef"), blob.MaxInline/8)
		sent, err := s.Blobs.FromBytes(t.Context(), large)
		if err != nil {
			t.Fatal(err)
		}
		filed := s.Blobs.Prepend(sent, []byte("Return-Path: <>\r\n"))
		id := db.MinIDAt(at)
		dbtest.Exec(a.t, a.s.DB, sent.InsertStatement(), filed.InsertStatement(), plantOld.With(id, a.account, 5, 0, "x", "<x>", "x", sent.ID, db.Micros(at), 0),
			plantOldDelivery.With(id, 0, a.account, "u@x.example", "delivered", farAhead, nil, 0, db.Micros(at), 0))
		a.index(id)
		if n := a.prune(now.Add(-30*24*time.Hour), 100); len(n) != 1 {
			t.Fatalf("pruned %v", n)
		}
		for i := range 3 { // a file goes when it was met twice without a row
			later := &blob.Store{DB: s.DB, Files: s.Blobs.Files, Now: func() time.Time { return now.Add(time.Duration(48+2*i) * time.Hour) }}
			if n, err := later.Sweep(t.Context()); n > 0 || err != nil {
				t.Errorf("swept %d, %v", n, err)
			}
		}
		b, err := s.Blobs.Load(t.Context(), filed.ID)
		if err != nil {
			t.Fatal(err)
		}
		r, err := b.Open(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close() //nolint:errcheck // only read
		if got, err := io.ReadAll(r.All()); err != nil || !bytes.HasSuffix(got, large) {
			t.Errorf("read %d bytes, %v", len(got), err)
		}
	})
}
