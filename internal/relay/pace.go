// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"strings"
	"time"

	"github.com/mailstead/mailstead/internal/smtpclient"
)

const (
	// coolFirst is how long a host that asks us to stop is left alone; each
	// time in a row it is twice as long, up to coolMost.
	coolFirst = 5 * time.Second
	coolMost  = 5 * time.Minute
	// oneEvent is the time within which several complaints of a host, over
	// several connections, count as one.
	oneEvent = time.Second
	// paceLife is for how long after its last complaint a pace is remembered
	// where many are.
	paceLife = time.Hour
	// fewLife is for how long it is remembered after how many recipients a host
	// hangs up: longer than the queue waits between two attempts.
	fewLife = 24 * time.Hour
	// slowest is the lowest rate, in messages per second, that a host's
	// complaints bring it down to.
	slowest = 0.1
	// recent is the time over which the rate of what a host takes is measured, up
	// to twice of it. A longer pause begins a new measurement: the slowest rate is
	// one message in that time.
	recent = 10 * time.Second
	// recovery is how many successes in a row it takes, about, from half of
	// the rate at which a host complained to four times that rate, from where
	// on there is no limit but the operator's.
	recovery = 70
)

// pace is how fast mail may go to one address: additive increase with each
// success, multiplicative decrease with each complaint, and a rest after one
// that means all mail. It has no clock of its own. The zero value is of no use;
// see newPace.
type pace struct {
	most  float64 // connections, the operator's limit
	top   float64 // messages per second, the same; 0: none
	limit float64 // connections now, from 1
	rate  float64 // messages per second now; 0: no limit
	was   float64 // the rate at which the host complained
	next  time.Time

	cool        time.Time // nothing is sent until then
	cooled      int       // rests in a row
	halved      time.Time // the last complaint
	now, before tally     // what the host took in the last two times of recent
	last        time.Time
	because     string // the last complaint's text, without addresses of a message

	few    int       // recipients of one message after which the host hung up
	hungUp time.Time // the last time

	stay time.Duration // of a run, about
}

func newPace(most int, top float64) *pace {
	return &pace{most: float64(most), limit: float64(most), top: top, rate: top}
}

// connections is how many there may be now.
func (p *pace) connections() int { return int(p.limit) }

// tally counts messages from a time on.
type tally struct {
	since time.Time
	n     int
}

// count notes a message that was taken, for the rate.
func (p *pace) count(now time.Time) {
	switch {
	case now.Sub(p.last) > recent:
		p.now, p.before = tally{since: now}, tally{}
	case now.Sub(p.now.since) >= recent:
		p.now, p.before = tally{since: now}, p.now
	}
	p.now.n++
	p.last = now
}

// taken is the rate, in messages per second, at which the host took mail
// recently; false if that was too little to tell.
func (p *pace) taken(now time.Time) (rate float64, ok bool) {
	since, n := p.now.since, p.now.n+p.before.n
	if p.before.n > 0 {
		since = p.before.since
	}
	took := now.Sub(since)
	if n < 2 || took < oneEvent || now.Sub(p.last) > recent {
		return 0, false
	}
	return float64(n) / took.Seconds(), true
}

// success notes a message that was taken.
func (p *pace) success(now time.Time) {
	p.count(now)
	if now.Before(p.cool) { // a straggler's
		return
	}
	p.cooled = 0
	p.limit = min(p.most, p.limit+1/p.limit)
	if p.was == 0 {
		return
	}
	p.rate += p.was * 3.5 / recovery
	if p.rate >= 4*p.was || p.top > 0 && p.rate >= p.top {
		p.rate, p.was = p.top, 0
	}
}

// complaint slows down. One that is about all mail, and not one message, also
// brings a rest.
func (p *pace) complaint(now time.Time, all bool, text string) {
	p.because = text
	if !p.halved.IsZero() && now.Sub(p.halved) < oneEvent && (!all || now.Before(p.cool)) {
		return
	}
	p.halved = now
	p.limit = max(1, p.limit/2)
	if was, ok := p.taken(now); ok {
		if p.rate > 0 {
			was = min(was, p.rate)
		}
		p.was = max(was, 2*slowest) // so that the way back is as long for the slowest
		p.rate = p.was / 2
		if p.top > 0 {
			p.rate = min(p.rate, p.top)
		}
	}
	p.now, p.before = tally{}, tally{}
	if all {
		p.cool = now.Add(min(coolFirst<<min(p.cooled, 10), coolMost))
		p.cooled++
	}
}

// stayed notes how long a run was there.
func (p *pace) stayed(d time.Duration) { p.stay += (d - p.stay) / 8 }

// rest is how long those take who wait, so many, about.
func (p *pace) rest(waiting int) time.Duration {
	return min(max(p.stay*time.Duration(waiting)/time.Duration(p.connections()), leastRest), mostRest)
}

// refused notes that the host takes no further connection beside so many.
func (p *pace) refused(talking int, text string) {
	p.because = text
	p.limit = max(1, min(p.limit/2, float64(talking)))
}

// hangsUp notes that the host hung up after so many recipients of a message.
func (p *pace) hangsUp(now time.Time, after int) { p.few, p.hungUp = after, now }

// recipients is how many of so many recipients a message may have.
func (p *pace) recipients(now time.Time, of int) int {
	if now.Sub(p.hungUp) >= fewLife {
		return of
	}
	return min(of, p.few)
}

// when tells when the next message may go. A second's worth may go at once.
func (p *pace) when(now time.Time) time.Time {
	if p.rate <= 0 {
		return now
	}
	if first := now.Add(-max(time.Second-p.gap(), 0)); p.next.Before(first) {
		p.next = first
	}
	return p.next
}

// gap is the time from one message to the next.
func (p *pace) gap() time.Duration { return time.Duration(float64(time.Second) / p.rate) }

// goes notes that a message goes.
func (p *pace) goes() {
	if p.rate > 0 {
		p.next = p.next.Add(p.gap())
	}
}

// idle reports whether there is nothing to remember.
func (p *pace) idle(now time.Time) bool {
	return p.limit >= p.most && p.was == 0 && p.cooled == 0 && now.Sub(p.hungUp) >= fewLife && !now.Before(p.cool) && !now.Before(p.next)
}

// past reports whether the last complaint was so long ago that it tells little.
func (p *pace) past(now time.Time) bool {
	return now.Sub(p.halved) > paceLife && !now.Before(p.cool) && !now.Before(p.next)
}

// slowed reports whether the host has made us slower than the operator does.
func (p *pace) slowed(now time.Time) bool {
	return now.Before(p.cool) || p.connections() < int(p.most) || p.was > 0
}

// complains reports whether a reply asks us to slow down, and whether it means
// all mail: 421 ends the conversation, 4.3.2 and 4.4.5 speak of the whole
// system; 4.7.x is a policy, which greylisting makes of every first try.
func complains(r smtpclient.Reply) (yes, all bool) {
	if r.Code/100 != 4 {
		return false, false
	}
	if r.Code == 421 || r.Enhanced == "4.3.2" || r.Enhanced == "4.4.5" {
		return true, true
	}
	text := strings.ToLower(r.Text())
	grey := strings.Contains(text, "greylist") || strings.Contains(text, "graylist")
	return strings.HasPrefix(r.Enhanced, "4.7.") && !grey, false
}
