// SPDX-License-Identifier: Apache-2.0

package dispatch

import (
	"slices"

	"github.com/mailstead/mailstead/internal/db"
)

// accountLoad counts an account's leased deliveries and sessions.
type accountLoad[D Delivery] struct {
	account         db.ID
	slotsUsed       int               // leased deliveries
	sessions        int               // sessions started for its mail that hold a slot
	waitingSessions int               // sessions that gave up their slot (ReleaseSlot)
	waiting         []*destination[D] // destinations that wait for a session for its mail
}

// fairnessFactor limits an account to this multiple of the free sessions, and of the free slots for
// new mail. An account whose mail goes to hosts that time out can't occupy all of them: the next
// account always finds some free, however many accounts came before.
const fairnessFactor = 3

func withinFairShare(has, free int) bool { return has < fairnessFactor*free }

func (x *Dispatcher[D]) account(id db.ID) *accountLoad[D] {
	a := x.accounts[id]
	if a == nil {
		a = &accountLoad[D]{account: id}
		x.accounts[id] = a
	}
	return a
}

// removeIdleAccount removes an account that has no state to remember.
func (x *Dispatcher[D]) removeIdleAccount(a *accountLoad[D]) {
	if a.slotsUsed == 0 && a.sessions == 0 && a.waitingSessions == 0 && len(a.waiting) == 0 {
		delete(x.accounts, a.account)
	}
}

// admitsAccount reports whether an account may take one more slot for new mail.
func (x *Dispatcher[D]) admitsAccount(id db.ID) bool {
	has := 0
	if a := x.accounts[id]; a != nil {
		has = a.slotsUsed
	}
	return withinFairShare(has, x.o.Capacity-x.slotsUsed)
}

func (x *Dispatcher[D]) mayStartSession(a *accountLoad[D]) bool {
	return withinFairShare(a.sessions, x.o.MaxSessions-x.sessions)
}

// readyAccounts calls f with the accounts of the deliveries that a session could take from d, until
// f returns false. It may call f with an account twice, but not twice in a row.
func (x *Dispatcher[D]) readyAccounts(d *destination[D], f func(*accountLoad[D]) bool) {
	var last *accountLoad[D]
	for _, r := range d.ready {
		e := r.entry()
		a := x.accounts[e.Account]
		if a == last || x.blocked[e.Message] > 0 {
			continue
		}
		if last = a; !f(a) {
			return
		}
	}
}

// eligibleAccount returns an account that has a ready delivery for d and may start one more
// session; nil for none.
func (x *Dispatcher[D]) eligibleAccount(d *destination[D]) (found *accountLoad[D]) {
	x.readyAccounts(d, func(a *accountLoad[D]) bool {
		if x.mayStartSession(a) {
			found = a
		}
		return found == nil
	})
	return found
}

// waitForSession puts a destination on the waiting list of each account that has a ready delivery
// for it. The first account that may start a session starts it.
func (x *Dispatcher[D]) waitForSession(d *destination[D]) {
	x.readyAccounts(d, func(a *accountLoad[D]) bool {
		if d.waitingFor[a] {
			return true
		}
		if d.waitingFor == nil {
			d.waitingFor = map[*accountLoad[D]]bool{}
		}
		d.waitingFor[a] = true
		if len(a.waiting) == 0 {
			x.waitingAccounts = append(x.waitingAccounts, a)
		}
		a.waiting = append(a.waiting, d)
		return true
	})
}

// startWaitingDestinations starts sessions for destinations that wait for one. The accounts take
// turns.
func (x *Dispatcher[D]) startWaitingDestinations() {
	for n := 0; n < len(x.waitingAccounts) && x.sessions < x.o.MaxSessions; {
		a := x.waitingAccounts[n]
		if !x.mayStartSession(a) {
			n++
			continue
		}
		d := a.waiting[0]
		a.waiting = removeAt(a.waiting, 0)
		delete(d.waitingFor, a)
		if x.waitingAccounts = slices.Delete(x.waitingAccounts, n, n+1); len(a.waiting) > 0 {
			x.waitingAccounts = append(x.waitingAccounts, a)
		}
		x.startSessions(d)
		x.removeIdleDestination(d)
		x.removeIdleAccount(a)
	}
}

// removeAt removes the element at i, cheaply if it is the first.
func removeAt[T any](list []T, i int) []T {
	if i > 0 {
		return slices.Delete(list, i, i+1)
	}
	clear(list[:1])
	return list[1:]
}
