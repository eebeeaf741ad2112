// SPDX-License-Identifier: Apache-2.0

// Package dispatch decides in memory which deliveries a node leases and which it attempts next:
//
//   - Windows limit the leased deliveries of each destination. All others wait in rows, and are
//     claimed when slots become free.
//   - Destinations with waiting rows share the slots, and accounts share the sessions, so that
//     mail to hosts that are slow or dead does not delay other mail.
//   - A destination that can't be reached is tried again after a growing pause.
//
// The package does no I/O, starts no goroutine and reads time only from Options.Now. It tells its
// user what to do by the functions in Options.
package dispatch

import (
	"time"

	"github.com/mailstead/mailstead/internal/db"
)

// Key identifies a delivery.
type Key struct {
	Message db.ID
	N       int // 0…, the recipient's index
}

// Entry is the dispatcher's part of a leased delivery. The delivery's type embeds it.
type Entry struct {
	Message     db.ID
	N           int // 0…, the recipient's index
	Account     db.ID
	Destination string // the recipient's domain: A-labels, lower case
	Lease       db.ID  // the lease in the row
	// Shareable reports whether the delivery may share a transaction with others of the message.
	Shareable bool

	inAttempt bool
	preempted bool
}

// Key returns the delivery's key.
func (e *Entry) Key() Key { return Key{e.Message, e.N} }

// InAttempt reports whether a session has taken the delivery and not put it back.
func (e *Entry) InAttempt() bool { return e.inAttempt }

func (e *Entry) entry() *Entry { return e }

// Delivery is a pointer to a struct that embeds an Entry.
type Delivery interface {
	comparable
	entry() *Entry
}

// Options configure a Dispatcher. The functions must return at once and not call the dispatcher.
type Options[D Delivery] struct {
	Now         func() time.Time
	Window      int // maximum of leased deliveries per destination
	Capacity    int // maximum of leased deliveries
	MaxSessions int // maximum of concurrent sessions

	// Lease returns the lease under which deliveries are leased. ok is false while no delivery may
	// be leased or attempted.
	Lease func() (lease db.ID, ok bool)
	// IsHeld reports whether all mail to a destination is held.
	IsHeld func(destination string) bool
	// StartSession starts a session. It ends with EndSession.
	StartSession func(s *Session[D])
	// StartClaim claims waiting rows. It ends with EndClaim.
	StartClaim func(c *Claim[D])
	// WakeAt asks for a call of Poll no later than at.
	WakeAt func(at time.Time)
	// Forgotten is called with each delivery that leaves the memory.
	Forgotten func(d D)
}

// Dispatcher is the memory of a node's leased deliveries. It is not safe for concurrent use.
type Dispatcher[D Delivery] struct {
	o               Options[D]
	started         bool
	destinations    map[string]*destination[D]
	deliveries      map[Key]D
	accounts        map[db.ID]*accountLoad[D]
	waitingAccounts []*accountLoad[D] // accounts that wait for a session
	refillQueue     []*destination[D] // destinations with rows to claim
	blocked         map[db.ID]int     // messages whose deliveries no session may take

	backlogged      int  // known destinations with rows that may be claimed
	full            bool // no slot was left for waiting rows
	slotsUsed       int
	preempting      int // slots in use that Preempt is freeing
	sessions        int
	waitingSessions int // sessions that gave up their slot, not counted in sessions
	inAttempt       int
	claims          int
	claimsPaused    bool
}

// New returns a dispatcher. Until Start is called it admits deliveries, and starts nothing.
func New[D Delivery](o Options[D]) *Dispatcher[D] {
	return &Dispatcher[D]{
		o:            o,
		destinations: map[string]*destination[D]{},
		deliveries:   map[Key]D{},
		accounts:     map[db.ID]*accountLoad[D]{},
		blocked:      map[db.ID]int{},
	}
}

// Start lets sessions and claims start.
func (x *Dispatcher[D]) Start() {
	x.started = true
	x.Resume()
}

// Resume restarts sessions and claims after a pause of all, such as a lost lease. It resets the
// stall timers, because no destination could make progress during the pause.
func (x *Dispatcher[D]) Resume() {
	now := x.o.Now()
	for _, d := range x.destinations {
		d.progressAt = now
		x.startSessions(d)
		x.refill(d)
	}
}

// Find returns a leased delivery, the zero value for none.
func (x *Dispatcher[D]) Find(k Key) D { return x.deliveries[k] }

// MayAdmit reports whether a new delivery gets a slot. Otherwise it must wait in a row. backoff is
// the end of the destination's backoff, zero for none.
func (x *Dispatcher[D]) MayAdmit(name string, account db.ID) (ok bool, backoff time.Time) {
	d := x.destinations[name]
	if d == nil {
		d = &destination[D]{name: name}
	}
	if x.o.Now().Before(d.backoffUntil) {
		return false, d.backoffUntil
	}
	// While older mail waits in rows, half of the window is reserved for it.
	free := min(d.window(x.o.Window)-d.slotsUsed, x.o.Capacity-x.slotsUsed)
	if d.hasBacklog {
		free -= x.o.Window / 2
	}
	_, leased := x.o.Lease()
	return leased && free > 0 && x.admitsAccount(account), time.Time{}
}

// Admit takes a slot for a leased delivery, or for one that is being inserted.
func (x *Dispatcher[D]) Admit(d D) {
	e := d.entry()
	x.reserveSlots(x.destination(e.Destination), 1)
	x.account(e.Account).slotsUsed++
	x.deliveries[e.Key()] = d
}

// Enqueue makes an admitted delivery ready for an attempt.
func (x *Dispatcher[D]) Enqueue(d D) {
	to := x.destination(d.entry().Destination)
	if len(to.ready) == 0 {
		to.progressAt = x.o.Now()
	}
	to.ready = append(to.ready, d)
	x.startSessions(to)
}

// Requeue puts a delivery that a session took back to the head of the ready list.
func (x *Dispatcher[D]) Requeue(d D) {
	e := d.entry()
	e.inAttempt = false
	x.inAttempt--
	to := x.destination(e.Destination)
	to.ready = append([]D{d}, to.ready...)
	x.startSessions(to)
}

// Forget removes a delivery, which must not be ready, and returns its slot.
func (x *Dispatcher[D]) Forget(d D) {
	e := d.entry()
	if e.inAttempt {
		e.inAttempt = false
		x.inAttempt--
	}
	if e.preempted {
		e.preempted = false
		x.preempting--
	}
	if k := e.Key(); x.deliveries[k] == d {
		delete(x.deliveries, k)
	}
	a := x.account(e.Account)
	a.slotsUsed--
	x.removeIdleAccount(a)
	to := x.destination(e.Destination)
	x.reserveSlots(to, -1)
	x.refill(to)
	x.removeIdleDestination(to)
	x.o.Forgotten(d)
}

// Withdraw removes the deliveries for which match is true from the ready lists. The caller releases
// and forgets them.
func (x *Dispatcher[D]) Withdraw(match func(D) bool) (found []D) {
	for _, to := range x.destinations {
		left := to.ready[:0]
		for _, d := range to.ready {
			if match(d) {
				found = append(found, d)
			} else {
				left = append(left, d)
			}
		}
		clear(to.ready[len(left):])
		to.ready = left
	}
	return found
}

// Block keeps sessions from taking deliveries of a message, until Unblock was called as often.
func (x *Dispatcher[D]) Block(message db.ID) { x.blocked[message]++ }

// Unblock reverses a Block.
func (x *Dispatcher[D]) Unblock(message db.ID) {
	if x.blocked[message]--; x.blocked[message] == 0 {
		delete(x.blocked, message)
	}
}

// BlockedCount returns the number of blocked messages.
func (x *Dispatcher[D]) BlockedCount() int { return len(x.blocked) }

// StartSessions starts sessions for a destination after a call of Unblock.
func (x *Dispatcher[D]) StartSessions(name string) {
	if d := x.destinations[name]; d != nil {
		x.startSessions(d)
	}
}

// Stats are current counts.
type Stats struct {
	Destinations int // destinations with leased or waiting deliveries, or in backoff
	Accounts     int // accounts with leased deliveries or waiting ones
	Leased       int // slots in use
	Ready        int // leased deliveries that wait for an attempt
	InAttempt    int // leased deliveries that sessions have taken
	Sessions     int // sessions at work
	Claims       int // running claims
}

// Stats returns the current counts.
func (x *Dispatcher[D]) Stats() Stats {
	s := Stats{Destinations: len(x.destinations), Accounts: len(x.accounts), Leased: x.slotsUsed,
		InAttempt: x.inAttempt, Sessions: x.sessions, Claims: x.claims}
	for _, d := range x.destinations {
		s.Ready += len(d.ready)
	}
	return s
}
