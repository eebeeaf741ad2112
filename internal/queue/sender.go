// SPDX-License-Identifier: Apache-2.0

package queue

import (
	"slices"

	"github.com/mailstead/mailstead/internal/db"
)

// sender is an account that has mail in hand, or runs. Queue.mu guards it.
type sender struct {
	account db.ID
	held    int            // deliveries in hand
	runs    int            // runs that began for its mail and count
	aside   int            // those that don't, see Run.Aside
	line    []*destination // that wait for a run, for its mail
}

// fair is how many times what is free an account may have: of the runs, and of
// the places for new mail. So its mail to hosts that take a greeting's timeout
// each can't have all, and whoever comes next finds some, however many came
// before.
const fair = 3

func entitled(has, free int) bool { return has < fair*free }

func (q *Queue) sender(account db.ID) *sender {
	s := q.senders[account]
	if s == nil {
		s = &sender{account: account}
		q.senders[account] = s
	}
	return s
}

// dismiss forgets an account of which there is nothing to know.
func (q *Queue) dismiss(s *sender) {
	if s.held == 0 && s.runs == 0 && s.aside == 0 && len(s.line) == 0 {
		delete(q.senders, s.account)
	}
}

// roomFor reports whether an account may have one more place for new mail.
func (q *Queue) roomFor(account db.ID) bool {
	has := 0
	if s := q.senders[account]; s != nil {
		has = s.held
	}
	return entitled(has, q.o.Places-q.held)
}

func (q *Queue) mayRun(s *sender) bool { return entitled(s.runs, q.o.Runs-q.runs) }

// runner returns an account that has something ready for a destination and may
// have one more run; nil for none.
func (q *Queue) runner(d *destination) *sender {
	var last *sender
	for _, x := range d.ready {
		s := q.senders[x.Account]
		if s == last || q.overruling[x.Message] > 0 {
			continue
		}
		if last = s; q.mayRun(s) {
			return s
		}
	}
	return nil
}

// enlist has a destination wait for a run, in the line of each account that has
// something ready for it: the first that may have one begins it.
func (q *Queue) enlist(d *destination) {
	var last *sender
	for _, x := range d.ready {
		s := q.senders[x.Account]
		if s == last || q.overruling[x.Message] > 0 {
			continue
		}
		if last = s; d.inLine[s] {
			continue
		}
		if d.inLine == nil {
			d.inLine = map[*sender]bool{}
		}
		d.inLine[s] = true
		if len(s.line) == 0 {
			q.line = append(q.line, s)
		}
		s.line = append(s.line, d)
	}
}

// startLine gives freed runs to the destinations that wait for one, the
// accounts taking turns.
func (q *Queue) startLine() {
	for n := 0; n < len(q.line) && q.runs < q.o.Runs; {
		s := q.line[n]
		if !q.mayRun(s) {
			n++
			continue
		}
		d := s.line[0]
		s.line = remove(s.line, 0)
		delete(d.inLine, s)
		if q.line = slices.Delete(q.line, n, n+1); len(s.line) > 0 {
			q.line = append(q.line, s)
		}
		q.start(d)
		q.tidy(d)
		q.dismiss(s)
	}
}
