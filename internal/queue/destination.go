// SPDX-License-Identifier: Apache-2.0

package queue

import (
	"slices"
	"time"

	"github.com/mailstead/mailstead/internal/db"
)

// destination is what the memory knows of a domain that mail goes to. Queue.mu
// guards it.
type destination struct {
	name    string
	ready   []*Delivery // in hand, not with a courier, in order
	moved   time.Time   // when a courier last took of it, or it began to be something
	held    int         // places taken: reserved, ready, carried, or being written
	runs    int
	courier Courier          // of the last run
	inLine  map[*sender]bool // in whose lines it waits for a run

	waits   bool // rows wait that found no place
	arrived int  // how often rows came to wait
	behind  bool // waits for its rows to be claimed
	filling bool // rows are being claimed

	proven   bool      // it answered, and may have more runs than one
	until    time.Time // put off until then
	failures int       // how often in a row it could not be reached
	rest     time.Time // no run begins until then
	slowed   bool      // its hosts took nothing the last time
}

// probe is how many deliveries are taken in hand for a destination that could
// not be reached the last time, or took nothing.
const probe = 5

// stillFor is how long a destination that nothing is taken from may keep places
// that others wait for, and then goes without.
const stillFor = time.Minute

// leastShare is how many deliveries that waited in rows are taken in hand for a
// destination however many others have such: fewer would cost a statement each.
const leastShare = 50

func (q *Queue) dest(name string) *destination {
	d := q.dests[name]
	if d == nil {
		d = &destination{name: name}
		q.dests[name] = d
	}
	return d
}

// tidy forgets a destination of which there is nothing to know.
func (q *Queue) tidy(d *destination) {
	if d.held == 0 && d.runs == 0 && !d.waits && !d.behind && !d.filling && len(d.inLine) == 0 && d.failures == 0 && !d.slowed {
		delete(q.dests, d.name)
	}
}

// able reports whether deliveries may be taken in hand at all.
func (q *Queue) able() (db.ID, bool) {
	tenure, ok := q.o.Node.Tenure()
	return tenure, ok && !q.ending && q.unwritten == 0
}

// room is how many more deliveries can be taken in hand for d as they come.
func (q *Queue) room(d *destination) int {
	return min(d.window(q.o.Window)-d.held, q.o.Places-q.held)
}

// window is how many deliveries may be in hand for d, of so many at most.
func (d *destination) window(most int) int {
	if d.failures > 0 || d.slowed {
		return min(most, probe)
	}
	return most
}

// share is how many deliveries that waited in rows may be in hand for d: the
// places for them are shared by the destinations that have such, so that none
// holds up the others. It is also what makes a long backlog cheap: what was
// accepted together lies together, and is claimed and settled together.
func (q *Queue) share(d *destination) int {
	places := q.claimable()
	return min(d.window(q.o.Window), max(places/max(1, q.waiting), leastShare), places)
}

// claimable is how many places there are for what waited in rows; the others
// are for new mail.
func (q *Queue) claimable() int { return max(1, q.o.Places*3/4) }

// resumes is how many places may be taken for claiming to go on once it found
// none: a quarter is free, so that many destinations claim in one commit. What
// they claim was accepted together and lies on the same pages.
func (q *Queue) resumes() int { return q.claimable() * 3 / 4 }

// await notes that rows wait for d.
func (q *Queue) await(d *destination) {
	d.arrived++ // a claim under way may have looked before
	if !d.waits {
		d.waits = true
		q.waiting++
	}
}

// served notes that no more rows wait for d.
func (q *Queue) served(d *destination) {
	if d.waits {
		d.waits = false
		q.waiting--
	}
}

// hold takes places.
func (q *Queue) hold(d *destination, n int) {
	d.held += n
	q.held += n
}

// vacate gives a place back and sees who can use it.
func (q *Queue) vacate(d *destination, n int) {
	q.hold(d, -n)
	q.fill(d)
	q.tidy(d)
}

// push hands a delivery to its destination.
func (q *Queue) push(d *Delivery) {
	if len(d.dest.ready) == 0 {
		d.dest.moved = q.o.Now()
	}
	d.dest.ready = append(d.dest.ready, d)
}

// giveWay takes back what is ready for destinations that stand still, if what
// waits in rows for others finds no place: hosts that take a message in minutes
// could have all the places for hours. It takes from those that stand longest,
// until catchUp goes on. q.mu is held.
func (q *Queue) giveWay(now time.Time) (back []*Delivery) {
	over := q.held - q.yielding - q.resumes()
	if _, able := q.able(); !able || !q.full || over <= 0 {
		return nil
	}
	var still []*destination
	for _, d := range q.dests {
		if len(d.ready) > 0 && now.Sub(d.moved) >= stillFor {
			still = append(still, d)
		}
	}
	slices.SortFunc(still, func(a, b *destination) int { return a.moved.Compare(b.moved) })
	for _, d := range still {
		if len(back) >= over {
			break
		}
		back = append(back, d.ready...)
		d.ready = nil
	}
	for _, d := range back {
		d.yields = true
	}
	q.yielding += len(back)
	return back
}

// forget drops a delivery from the memory, with its place.
func (q *Queue) forget(d *Delivery) {
	if d.carried {
		d.carried = false
		q.carried--
	}
	if d.yields {
		d.yields = false
		q.yielding--
	}
	if at := d.place(); q.hand[at] == d {
		delete(q.hand, at)
	}
	q.mails.drop(d.Message)
	s := q.sender(d.Account)
	s.held--
	q.dismiss(s)
	q.vacate(d.dest, 1)
	if q.settled != nil {
		q.settled(d)
	}
}

// start begins runs for a destination, as many as it can use.
func (q *Queue) start(d *destination) {
	if _, ok := q.able(); !ok || !q.begun || q.o.Now().Before(d.until) || q.o.Now().Before(d.rest) {
		return
	}
	for q.offers(d) && d.runs < d.wants() {
		s := q.runner(d)
		if s == nil {
			q.enlist(d)
			return
		}
		d.runs++
		q.runs++
		s.runs++
		q.work.Add(1)
		go q.conduct(d, s)
	}
}

// offers reports whether a run would find something to take.
func (q *Queue) offers(d *destination) bool {
	return slices.ContainsFunc(d.ready, func(x *Delivery) bool { return q.overruling[x.Message] == 0 })
}

// wants is how many runs a destination can use now.
func (d *destination) wants() int {
	if d.courier == nil || !d.proven {
		return 1
	}
	return min(max(1, d.courier.Runs(len(d.ready))), d.runs+len(d.ready))
}

// answered notes that a destination can be reached.
func (q *Queue) answered(d *destination) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if d.proven && d.failures == 0 && !d.slowed {
		return
	}
	d.proven, d.failures, d.slowed = true, 0, false
	q.start(d)
	q.fill(d)
}

// startAll begins again after a pause, in which nothing stood still by itself.
func (q *Queue) startAll() {
	now := q.o.Now()
	for _, d := range q.dests {
		d.moved = now
		q.start(d)
		q.fill(d)
	}
}

// putOff stops a destination for a while, since it could not be reached, and
// gives back what is ready. It returns that.
func (q *Queue) putOff(d *destination, now time.Time) []*Delivery {
	if !now.Before(d.until) { // else several runs met the same trouble
		d.failures++
		d.until = now.Add(backoff(d.failures))
		q.wakeAt(d.until)
	}
	ready := d.ready
	d.ready, d.proven = nil, false
	return ready
}
