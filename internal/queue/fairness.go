// SPDX-License-Identifier: Apache-2.0

package queue

import (
	"slices"

	"github.com/mailstead/mailstead/internal/db"
)

// accountLoad counts an account's leased deliveries and sessions. Queue.mu guards it.
type accountLoad struct {
	account         db.ID
	slotsUsed       int            // leased deliveries
	sessions        int            // sessions started for its mail that hold a slot
	waitingSessions int            // sessions that gave up their slot (Session.ReleaseSlot)
	waiting         []*destination // destinations that wait for a session for its mail
}

// fairnessFactor limits an account to this multiple of the free sessions, and of the free slots for
// new mail. An account whose mail goes to hosts that time out can't occupy all of them: the next
// account always finds some free, however many accounts came before.
const fairnessFactor = 3

func withinFairShare(has, free int) bool { return has < fairnessFactor*free }

func (q *Queue) account(account db.ID) *accountLoad {
	s := q.accounts[account]
	if s == nil {
		s = &accountLoad{account: account}
		q.accounts[account] = s
	}
	return s
}

// removeIdleAccount removes an account that has no state to remember.
func (q *Queue) removeIdleAccount(s *accountLoad) {
	if s.slotsUsed == 0 && s.sessions == 0 && s.waitingSessions == 0 && len(s.waiting) == 0 {
		delete(q.accounts, s.account)
	}
}

// admitsAccount reports whether an account may take one more slot for new mail.
func (q *Queue) admitsAccount(account db.ID) bool {
	has := 0
	if s := q.accounts[account]; s != nil {
		has = s.slotsUsed
	}
	return withinFairShare(has, q.o.Capacity-q.slotsUsed)
}

func (q *Queue) mayStartSession(s *accountLoad) bool {
	return withinFairShare(s.sessions, q.o.MaxSessions-q.sessions)
}

// eligibleAccount returns an account that has a ready delivery for d and may start one more
// session; nil for none.
func (q *Queue) eligibleAccount(d *destination) *accountLoad {
	var last *accountLoad
	for _, x := range d.ready {
		s := q.accounts[x.Account]
		if s == last || q.overriding[x.Message] > 0 {
			continue
		}
		if last = s; q.mayStartSession(s) {
			return s
		}
	}
	return nil
}

// waitForSession puts a destination on the waiting list of each account that has a ready delivery
// for it. The first account that may start a session starts it.
func (q *Queue) waitForSession(d *destination) {
	var last *accountLoad
	for _, x := range d.ready {
		s := q.accounts[x.Account]
		if s == last || q.overriding[x.Message] > 0 {
			continue
		}
		if last = s; d.waitingFor[s] {
			continue
		}
		if d.waitingFor == nil {
			d.waitingFor = map[*accountLoad]bool{}
		}
		d.waitingFor[s] = true
		if len(s.waiting) == 0 {
			q.waitingAccounts = append(q.waitingAccounts, s)
		}
		s.waiting = append(s.waiting, d)
	}
}

// startWaiting starts sessions for destinations that wait for one. The accounts take turns.
func (q *Queue) startWaiting() {
	for n := 0; n < len(q.waitingAccounts) && q.sessions < q.o.MaxSessions; {
		s := q.waitingAccounts[n]
		if !q.mayStartSession(s) {
			n++
			continue
		}
		d := s.waiting[0]
		s.waiting = removeAt(s.waiting, 0)
		delete(d.waitingFor, s)
		if q.waitingAccounts = slices.Delete(q.waitingAccounts, n, n+1); len(s.waiting) > 0 {
			q.waitingAccounts = append(q.waitingAccounts, s)
		}
		q.startSessions(d)
		q.removeIdleDestination(d)
		q.removeIdleAccount(s)
	}
}
