// SPDX-License-Identifier: Apache-2.0

package dispatch_test

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/queue/dispatch"
)

const (
	window      = 8
	capacity    = 24
	maxSessions = 5
	lease       = db.ID(7)
)

type delivery struct {
	dispatch.Entry
	seq int // order in which it became ready
}

type agent int

func (a agent) Concurrency(int) int { return int(a) }

// session is a running session with the deliveries that it has taken.
type session struct {
	*dispatch.Session[*delivery]
	taken []*delivery
}

// model is a node with its rows: everything around a dispatcher.
type model struct {
	t   *rapid.T
	x   *dispatch.Dispatcher[*delivery]
	now time.Time

	leased  bool
	held    map[string]bool
	blocked map[db.ID]int
	rows    map[string][]*delivery // waiting rows
	memory  map[dispatch.Key]*delivery
	ready   map[dispatch.Key]bool // enqueued, not taken
	claims  []*dispatch.Claim[*delivery]
	running []*session
	wakeAt  time.Time
	paused  bool

	next      db.ID
	seq       int
	accepted  int
	delivered map[dispatch.Key]int
}

func newModel(t *rapid.T) *model {
	m := &model{t: t, now: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC), leased: true,
		held: map[string]bool{}, blocked: map[db.ID]int{}, rows: map[string][]*delivery{},
		memory: map[dispatch.Key]*delivery{}, ready: map[dispatch.Key]bool{}, delivered: map[dispatch.Key]int{}}
	m.x = dispatch.New(dispatch.Options[*delivery]{
		Now: func() time.Time { return m.now }, Window: window, Capacity: capacity, MaxSessions: maxSessions,
		Lease:  func() (db.ID, bool) { return lease, m.leased },
		IsHeld: func(name string) bool { return m.held[name] },
		StartSession: func(s *dispatch.Session[*delivery]) {
			if !m.leased {
				t.Fatal("a session started without a lease")
			}
			m.running = append(m.running, &session{Session: s})
		},
		StartClaim: func(c *dispatch.Claim[*delivery]) {
			if !m.leased || m.paused {
				t.Fatal("a claim started without a lease, or while claims are paused")
			}
			if c.Held != m.held[c.Destination] {
				t.Fatalf("the claim of %s has held=%v", c.Destination, c.Held)
			}
			m.claims = append(m.claims, c)
		},
		WakeAt: func(at time.Time) {
			if m.wakeAt.IsZero() || at.Before(m.wakeAt) {
				m.wakeAt = at
			}
		},
		Forgotten: func(d *delivery) {
			if m.memory[d.Key()] != d {
				t.Fatalf("%v was forgotten twice", d.Key())
			}
			if m.ready[d.Key()] && d.Lease == lease {
				t.Fatalf("%v was forgotten while ready", d.Key())
			}
			delete(m.memory, d.Key())
			delete(m.ready, d.Key())
		},
	})
	return m
}

var (
	names    = rapid.SampledFrom([]string{"a.test", "b.test", "c.test", "d.test"})
	accounts = rapid.SampledFrom([]db.ID{1, 2, 3})
)

// accept accepts a message to some recipients of one destination.
func (m *model) accept(t *rapid.T) {
	m.next++
	account, name, shareable := accounts.Draw(t, "account"), names.Draw(t, "destination"), rapid.Bool().Draw(t, "shareable")
	for n := range rapid.IntRange(1, 6).Draw(t, "recipients") {
		d := &delivery{Entry: dispatch.Entry{Message: m.next, N: n, Account: account, Destination: name, Lease: lease, Shareable: shareable}}
		m.accepted++
		ok, backoff := m.x.MayAdmit(name, account)
		if ok && (!m.leased || !backoff.IsZero()) {
			t.Fatal("a delivery was admitted without a lease or during a backoff")
		}
		if ok && !m.held[name] {
			m.admit(d)
			m.enqueue(d)
			continue
		}
		m.rows[name] = append(m.rows[name], d)
		m.x.AddBacklog(name)
	}
}

func (m *model) admit(d *delivery) {
	m.memory[d.Key()] = d
	m.x.Admit(d)
}

func (m *model) enqueue(d *delivery) {
	m.seq++
	d.seq = m.seq
	m.ready[d.Key()] = true
	m.x.Enqueue(d)
}

// endClaim ends a claim that leased rows, or failed.
func (m *model) endClaim(t *rapid.T) {
	if len(m.claims) == 0 {
		return
	}
	i := rapid.IntRange(0, len(m.claims)-1).Draw(t, "claim")
	c := m.claims[i]
	m.claims = slices.Delete(m.claims, i, i+1)
	rows := m.rows[c.Destination]
	switch {
	case rapid.IntRange(0, 5).Draw(t, "claim fails") == 0:
		m.x.EndClaim(c, false, false)
	case c.Held:
		m.x.EndClaim(c, true, true) // the rows are held: they wait for the release
	default:
		n := min(c.Slots, len(rows))
		m.rows[c.Destination] = slices.Clone(rows[n:])
		for _, d := range rows[:n] {
			m.admit(d)
			m.enqueue(d)
		}
		m.x.EndClaim(c, n < c.Slots, true)
	}
}

// session returns one of the running sessions, nil for none.
func (m *model) session(t *rapid.T) *session {
	if len(m.running) == 0 {
		return nil
	}
	return rapid.SampledFrom(m.running).Draw(t, "session")
}

// take makes a session take a transaction.
func (m *model) take(t *rapid.T) {
	if s := m.session(t); s != nil {
		m.x.SetAgent(s.Session, agent(rapid.IntRange(1, 3).Draw(t, "concurrency")))
		m.takeBy(s)
	}
}

func (m *model) takeBy(s *session) {
	taken := m.x.Take(s.Session)
	if len(taken) == 0 {
		return
	}
	s.CountTransaction()
	if !m.leased {
		m.t.Fatal("a delivery was taken without a lease")
	}
	for _, d := range taken {
		switch {
		case !m.ready[d.Key()]:
			m.t.Fatalf("%v was taken, which was not ready", d.Key())
		case m.blocked[d.Message] > 0:
			m.t.Fatalf("%v was taken, whose message is blocked", d.Key())
		case d.Destination != s.Destination():
			m.t.Fatalf("a session of %s took a delivery to %s", s.Destination(), d.Destination)
		case d.Message != taken[0].Message || len(taken) > 1 && !d.Shareable:
			m.t.Fatal("deliveries share a transaction that may not")
		}
		delete(m.ready, d.Key())
	}
	for k := range m.ready { // the oldest comes first
		if d := m.memory[k]; d.Destination == s.Destination() && m.blocked[d.Message] == 0 && d.seq < taken[0].seq && d.Lease == lease {
			m.t.Fatalf("%v was taken before %v", taken[0].Key(), k)
		}
	}
	s.taken = append(s.taken, taken...)
}

// finish ends the attempt of a delivery that a session has taken.
func (m *model) finish(t *rapid.T) {
	s := m.session(t)
	if s == nil || len(s.taken) == 0 {
		return
	}
	d := s.taken[0]
	s.taken = s.taken[1:]
	switch rapid.IntRange(0, 4).Draw(t, "outcome") {
	case 0:
		m.ready[d.Key()] = true
		m.seq++
		d.seq = -m.seq // to the head
		m.x.Requeue(d)
	case 1: // deferred
		m.x.MarkReachable(s.Session)
		m.release([]*delivery{d})
	default:
		m.x.MarkReachable(s.Session)
		m.deliver(d)
	}
}

func (m *model) deliver(d *delivery) {
	m.delivered[d.Key()]++
	m.x.Forget(d)
}

// release returns deliveries to their rows.
func (m *model) release(list []*delivery) {
	for _, d := range list {
		delete(m.ready, d.Key())
		if d.Lease != lease {
			m.x.Forget(d) // its row has been released
			continue
		}
		m.rows[d.Destination] = append(m.rows[d.Destination], &delivery{Entry: dispatch.Entry{Message: d.Message, N: d.N,
			Account: d.Account, Destination: d.Destination, Lease: lease, Shareable: d.Shareable}})
		m.x.MarkWaiting(d.Destination)
		m.x.Forget(d)
	}
}

func (m *model) backOff(t *rapid.T) {
	s := m.session(t)
	if s == nil || len(s.taken) == 0 {
		return
	}
	ready, until := m.x.BackOff(s.Session)
	if !until.After(m.now) || m.wakeAt.IsZero() || m.wakeAt.After(until) {
		t.Fatalf("the backoff ends at %v, and the queue wakes at %v", until, m.wakeAt)
	}
	m.release(ready)
	m.end(s)
}

func (m *model) pause(t *rapid.T) {
	s := m.session(t)
	if s == nil {
		return
	}
	until := m.x.PauseDestination(s.Session, m.now.Add(time.Duration(rapid.IntRange(1, 100).Draw(t, "seconds"))*time.Second))
	if !until.After(m.now) || m.wakeAt.IsZero() || m.wakeAt.After(until) {
		t.Fatalf("the pause ends at %v, and the queue wakes at %v", until, m.wakeAt)
	}
	m.end(s)
}

func (m *model) endSession(t *rapid.T) {
	if s := m.session(t); s != nil {
		m.end(s)
	}
}

func (m *model) end(s *session) {
	m.release(s.taken)
	m.running = slices.DeleteFunc(m.running, func(o *session) bool { return o == s })
	ready, _ := m.x.EndSession(s.Session)
	m.release(ready)
}

func (m *model) releaseSlot(t *rapid.T) {
	if s := m.session(t); s != nil && m.x.ReleaseSlot(s.Session) {
		m.x.ReturnSlot(s.Session)
	}
}

func (m *model) pass(t *rapid.T) {
	m.now = m.now.Add(time.Duration(rapid.IntRange(1, 1200).Draw(t, "seconds")) * time.Second)
	m.poll()
}

func (m *model) poll() {
	m.wakeAt = time.Time{}
	m.x.Poll()
	if m.leased {
		m.release(m.x.Preempt())
	}
}

// block keeps a message from being attempted, or ends that.
func (m *model) block(t *rapid.T) {
	if m.next == 0 {
		return
	}
	id := db.ID(rapid.Int64Range(1, int64(m.next)).Draw(t, "message"))
	if m.blocked[id] > 0 {
		m.unblock(id)
		return
	}
	m.blocked[id]++
	m.x.Block(id)
}

func (m *model) unblock(id db.ID) {
	delete(m.blocked, id)
	m.x.Unblock(id)
	for k := range m.ready {
		if k.Message == id {
			m.x.StartSessions(m.memory[k].Destination)
		}
	}
}

// hold holds a destination, or releases it.
func (m *model) hold(t *rapid.T) {
	name := names.Draw(t, "destination")
	m.setHeld(name, !m.held[name])
}

func (m *model) setHeld(name string, held bool) {
	m.held[name] = held
	if !held {
		m.x.AddBacklog(name)
		return
	}
	// A claim that is running now is not affected.
	m.release(m.x.Withdraw(func(d *delivery) bool { return d.Destination == name }))
}

func (m *model) loseLease(*rapid.T) {
	m.setLeased(!m.leased)
}

func (m *model) setLeased(leased bool) {
	if m.leased = leased; leased {
		m.x.Resume()
	}
}

// expireLease gives some ready deliveries an older lease, as if it had expired and been acquired
// again.
func (m *model) expireLease(*rapid.T) {
	for k := range m.ready {
		d := m.memory[k]
		if d.Lease != lease {
			continue
		}
		d.Lease = lease - 1
		m.rows[d.Destination] = append(m.rows[d.Destination], &delivery{Entry: dispatch.Entry{Message: d.Message, N: d.N + 1000,
			Account: d.Account, Destination: d.Destination, Lease: lease, Shareable: d.Shareable}})
		m.x.AddBacklog(d.Destination)
		break
	}
}

func (m *model) pauseClaims(*rapid.T) {
	if m.paused = !m.paused; m.paused {
		m.x.PauseClaims()
		return
	}
	m.resumeClaims()
}

func (m *model) resumeClaims() {
	m.paused = false
	m.x.ResumeClaims()
	m.x.Resume()
}

// check compares the dispatcher with the model after every step.
func (m *model) check(t *rapid.T) {
	s := m.x.Stats()
	reserved, per := 0, map[string]int{}
	for _, c := range m.claims {
		reserved += c.Slots
		per[c.Destination] += c.Slots
	}
	for _, d := range m.memory {
		per[d.Destination]++
	}
	switch {
	case s.Leased != len(m.memory)+reserved:
		t.Fatalf("%d slots are in use, %d deliveries in memory, %d slots reserved", s.Leased, len(m.memory), reserved)
	case s.Leased > capacity:
		t.Fatalf("%d slots are in use of %d", s.Leased, capacity)
	case s.Ready != len(m.ready):
		t.Fatalf("%d are ready, not %d", s.Ready, len(m.ready))
	case s.Sessions != len(m.running) || s.Sessions > maxSessions:
		t.Fatalf("%d sessions are counted, %d run", s.Sessions, len(m.running))
	case s.Claims != len(m.claims):
		t.Fatalf("%d claims are counted, %d run", s.Claims, len(m.claims))
	}
	for name, n := range per {
		if n > window {
			t.Fatalf("%s has %d slots", name, n)
		}
	}
}

// settle lets everything come to an end: in bounded time every delivery is delivered.
func (m *model) settle(t *rapid.T) {
	m.setLeased(true)
	m.resumeClaims()
	for id := range maps.Clone(m.blocked) {
		m.unblock(id)
	}
	for name, held := range m.held {
		if held {
			m.setHeld(name, false)
		}
	}
	for range 2000 {
		switch {
		case len(m.claims) > 0:
			c := m.claims[0]
			m.claims = m.claims[1:]
			n := min(c.Slots, len(m.rows[c.Destination]))
			rows := m.rows[c.Destination]
			m.rows[c.Destination] = slices.Clone(rows[n:])
			for _, d := range rows[:n] {
				m.admit(d)
				m.enqueue(d)
			}
			m.x.EndClaim(c, n < c.Slots, true)
		case len(m.running) > 0:
			s := m.running[0]
			m.takeBy(s)
			for _, d := range s.taken {
				m.x.MarkReachable(s.Session)
				m.deliver(d)
			}
			if len(s.taken) == 0 {
				m.end(s)
			}
			s.taken = nil
		default:
			if s := m.x.Stats(); s.Leased == 0 && len(m.delivered) >= m.accepted && s.Destinations == 0 {
				if s.Accounts != 0 {
					t.Fatalf("%d accounts are remembered", s.Accounts)
				}
				return
			}
			m.now = m.now.Add(time.Hour)
			for name, rows := range m.rows { // the queue finds due rows when it polls
				if len(rows) > 0 {
					m.x.AddBacklog(name)
				}
			}
			m.poll()
		}
		m.check(t)
	}
	t.Fatalf("not at rest: %+v; %d of %d delivered; %v", m.x.Stats(), len(m.delivered), m.accepted, m.rows)
}

// Whatever happens in whatever order, limits and order hold, and in the end everything is delivered
// once and forgotten.
func TestModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := newModel(t)
		m.x.Start()
		t.Repeat(map[string]func(*rapid.T){
			"accept": m.accept, "accept more": m.accept, "take": m.take, "take more": m.take, "finish": m.finish, "finish more": m.finish,
			"end claim": m.endClaim, "end session": m.endSession, "back off": m.backOff, "pause": m.pause, "release slot": m.releaseSlot,
			"pass": m.pass, "block": m.block, "hold": m.hold, "lose lease": m.loseLease, "expire lease": m.expireLease, "pause claims": m.pauseClaims,
			"": m.check,
		})
		m.settle(t)
		for k, n := range m.delivered {
			if n != 1 {
				t.Fatalf("%v was delivered %d times", k, n)
			}
		}
	})
}

// Several sessions may learn at the same time that their destination takes no mail. When all of
// them have ended, every delivery waits in its row.
func TestPauseBySeveral(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := newModel(t)
		m.x.Start()
		for i := range window {
			d := &delivery{Entry: dispatch.Entry{Message: db.ID(i + 1), Account: 1, Destination: "slow.test", Lease: lease}}
			m.admit(d)
			m.enqueue(d)
		}
		first := m.running[0]
		m.x.SetAgent(first.Session, agent(3))
		m.takeBy(first)
		m.x.MarkReachable(first.Session)
		if len(m.running) < 2 {
			t.Fatalf("%d sessions", len(m.running))
		}
		for _, s := range m.running {
			m.x.PauseDestination(s.Session, m.now.Add(time.Hour))
		}
		for len(m.running) > 0 {
			m.end(m.running[0])
		}
		if len(m.rows["slow.test"]) != window {
			t.Fatalf("%d of %d deliveries wait in rows", len(m.rows["slow.test"]), window)
		}
	})
}

// An account that has much mail to one destination leaves slots and sessions to others.
func TestFairness(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := newModel(t)
		m.x.Start()
		used := 0
		for i := 0; ; i++ {
			name := fmt.Sprintf("%d.test", i)
			if ok, _ := m.x.MayAdmit(name, 1); !ok {
				break
			}
			d := &delivery{Entry: dispatch.Entry{Message: db.ID(i + 1), Account: 1, Destination: name, Lease: lease}}
			m.admit(d)
			m.enqueue(d)
			used++
		}
		if ok, _ := m.x.MayAdmit("other.test", 2); !ok || used >= capacity {
			t.Fatalf("an account used %d of %d slots, and left none", used, capacity)
		}
		before := len(m.running)
		if before >= maxSessions {
			t.Fatalf("an account used %d of %d sessions", before, maxSessions)
		}
		d := &delivery{Entry: dispatch.Entry{Message: 1000, Account: 2, Destination: "other.test", Lease: lease}}
		m.admit(d)
		m.enqueue(d)
		if len(m.running) == before {
			t.Fatal("another account got no session")
		}
	})
}
