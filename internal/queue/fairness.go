// SPDX-License-Identifier: Apache-2.0

package queue

import (
	"slices"

	"github.com/mailstead/mailstead/internal/db"
)

// accountLoad is an account that has mail in hand, or runs. Queue.mu guards it.
type accountLoad struct {
	account         db.ID
	slotsUsed       int            // deliveries in hand
	sessions        int            // runs that began for its mail and count
	waitingSessions int            // those that don't, see Session.Aside
	waiting         []*destination // that wait for a run, for its mail
}

// fairnessFactor is how many times what is free an account may have: of the runs, and of
// the places for new mail. So its mail to hosts that take a greeting's timeout
// each can't have all, and whoever comes next finds some, however many came
// before.
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

// removeIdleAccount forgets an account of which there is nothing to know.
func (q *Queue) removeIdleAccount(s *accountLoad) {
	if s.slotsUsed == 0 && s.sessions == 0 && s.waitingSessions == 0 && len(s.waiting) == 0 {
		delete(q.accounts, s.account)
	}
}

// admitsAccount reports whether an account may have one more place for new mail.
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

// eligibleAccount returns an account that has something ready for a destination and may
// have one more run; nil for none.
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

// waitForSession has a destination wait for a run, in the line of each account that has
// something ready for it: the first that may have one begins it.
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

// startWaiting gives freed runs to the destinations that wait for one, the
// accounts taking turns.
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
