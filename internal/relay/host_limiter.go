// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"strings"
	"time"

	"github.com/mailstead/mailstead/internal/smtpclient"
)

const (
	// minPause is how long a host that asks us to stop is left alone; each
	// time in a row it is twice as long, up to maxPause.
	minPause = 5 * time.Second
	maxPause = 5 * time.Minute
	// complaintWindow is the time within which several complaints of a host, over
	// several connections, count as one.
	complaintWindow = time.Second
	// limiterTTL is for how long after its last complaint a pace is remembered
	// where many are.
	limiterTTL = time.Hour
	// rcptLimitTTL is for how long it is remembered after how many recipients a host
	// hangs up: longer than the queue waits between two attempts.
	rcptLimitTTL = 24 * time.Hour
	// minRate is the lowest rate, in messages per second, that a host's
	// complaints bring it down to.
	minRate = 0.1
	// rateWindow is the time over which the rate of what a host takes is measured, up
	// to twice of it. A longer pause begins a new measurement: the slowest rate is
	// one message in that time.
	rateWindow = 10 * time.Second
	// recoverySuccesses is how many successes in a row it takes, about, from half of
	// the rate at which a host complained to four times that rate, from where
	// on there is no limit but the operator's.
	recoverySuccesses = 70
)

// hostLimiter is how fast mail may go to one address: additive increase with each
// success, multiplicative decrease with each complaint, and a rest after one
// that means all mail. It has no clock of its own. The zero value is of no use;
// see newHostLimiter.
type hostLimiter struct {
	maxConns      float64 // connections, the operator's limit
	maxRate       float64 // messages per second, the same; 0: none
	connLimit     float64 // connections now, from 1
	rate          float64 // messages per second now; 0: no limit
	complaintRate float64 // the rate at which the host complained
	nextSend      time.Time

	pausedUntil       time.Time   // nothing is sent until then
	pauses            int         // rests in a row
	lastComplaint     time.Time   // the last complaint
	current, previous rateCounter // what the host took in the last two times of recent
	lastAccepted      time.Time
	reason            string // the last complaint's text, without addresses of a message

	maxRcpts int       // recipients of one message after which the host hung up
	hungUpAt time.Time // the last time

	avgSlotTime time.Duration // of a run, about
}

func newHostLimiter(most int, top float64) *hostLimiter {
	return &hostLimiter{maxConns: float64(most), connLimit: float64(most), maxRate: top, rate: top}
}

// maxConnections is how many there may be now.
func (p *hostLimiter) maxConnections() int { return int(p.connLimit) }

// rateCounter counts messages from a time on.
type rateCounter struct {
	since time.Time
	count int
}

// countAccepted notes a message that was taken, for the rate.
func (p *hostLimiter) countAccepted(now time.Time) {
	switch {
	case now.Sub(p.lastAccepted) > rateWindow:
		p.current, p.previous = rateCounter{since: now}, rateCounter{}
	case now.Sub(p.current.since) >= rateWindow:
		p.current, p.previous = rateCounter{since: now}, p.current
	}
	p.current.count++
	p.lastAccepted = now
}

// acceptRate is the rate, in messages per second, at which the host took mail
// recently; false if that was too little to tell.
func (p *hostLimiter) acceptRate(now time.Time) (rate float64, ok bool) {
	since, n := p.current.since, p.current.count+p.previous.count
	if p.previous.count > 0 {
		since = p.previous.since
	}
	took := now.Sub(since)
	if n < 2 || took < complaintWindow || now.Sub(p.lastAccepted) > rateWindow {
		return 0, false
	}
	return float64(n) / took.Seconds(), true
}

// recordSuccess notes a message that was taken.
func (p *hostLimiter) recordSuccess(now time.Time) {
	p.countAccepted(now)
	if now.Before(p.pausedUntil) { // a straggler's
		return
	}
	p.pauses = 0
	p.connLimit = min(p.maxConns, p.connLimit+1/p.connLimit)
	if p.complaintRate == 0 {
		return
	}
	p.rate += p.complaintRate * 3.5 / recoverySuccesses
	if p.rate >= 4*p.complaintRate || p.maxRate > 0 && p.rate >= p.maxRate {
		p.rate, p.complaintRate = p.maxRate, 0
	}
}

// recordComplaint slows down. One that is about all mail, and not one message, also
// brings a rest.
func (p *hostLimiter) recordComplaint(now time.Time, all bool, text string) {
	p.reason = text
	if !p.lastComplaint.IsZero() && now.Sub(p.lastComplaint) < complaintWindow && (!all || now.Before(p.pausedUntil)) {
		return
	}
	p.lastComplaint = now
	p.connLimit = max(1, p.connLimit/2)
	if was, ok := p.acceptRate(now); ok {
		if p.rate > 0 {
			was = min(was, p.rate)
		}
		p.complaintRate = max(was, 2*minRate) // so that the way back is as long for the slowest
		p.rate = p.complaintRate / 2
		if p.maxRate > 0 {
			p.rate = min(p.rate, p.maxRate)
		}
	}
	p.current, p.previous = rateCounter{}, rateCounter{}
	if all {
		p.pausedUntil = now.Add(min(minPause<<min(p.pauses, 10), maxPause))
		p.pauses++
	}
}

// recordSlotTime notes how long a run was there.
func (p *hostLimiter) recordSlotTime(d time.Duration) { p.avgSlotTime += (d - p.avgSlotTime) / 8 }

// estimateWait is how long those take who wait, so many, about.
func (p *hostLimiter) estimateWait(waiting int) time.Duration {
	return min(max(p.avgSlotTime*time.Duration(waiting)/time.Duration(p.maxConnections()), minRetryDelay), maxRetryDelay)
}

// recordConnRefused notes that the host takes no further connection beside so many.
func (p *hostLimiter) recordConnRefused(talking int, text string) {
	p.reason = text
	p.connLimit = max(1, min(p.connLimit/2, float64(talking)))
}

// recordHangup notes that the host hung up after so many recipients of a message.
func (p *hostLimiter) recordHangup(now time.Time, after int) { p.maxRcpts, p.hungUpAt = after, now }

// maxRecipients is how many of so many recipients a message may have.
func (p *hostLimiter) maxRecipients(now time.Time, of int) int {
	if now.Sub(p.hungUpAt) >= rcptLimitTTL {
		return of
	}
	return min(of, p.maxRcpts)
}

// nextSendTime tells when the next message may go. A second's worth may go at once.
func (p *hostLimiter) nextSendTime(now time.Time) time.Time {
	if p.rate <= 0 {
		return now
	}
	if first := now.Add(-max(time.Second-p.sendInterval(), 0)); p.nextSend.Before(first) {
		p.nextSend = first
	}
	return p.nextSend
}

// sendInterval is the time from one message to the next.
func (p *hostLimiter) sendInterval() time.Duration {
	return time.Duration(float64(time.Second) / p.rate)
}

// recordSend notes that a message goes.
func (p *hostLimiter) recordSend() {
	if p.rate > 0 {
		p.nextSend = p.nextSend.Add(p.sendInterval())
	}
}

// isDefault reports whether there is nothing to remember.
func (p *hostLimiter) isDefault(now time.Time) bool {
	return p.connLimit >= p.maxConns && p.complaintRate == 0 && p.pauses == 0 && now.Sub(p.hungUpAt) >= rcptLimitTTL && !now.Before(p.pausedUntil) && !now.Before(p.nextSend)
}

// isExpired reports whether the last complaint was so long ago that it tells little.
func (p *hostLimiter) isExpired(now time.Time) bool {
	return now.Sub(p.lastComplaint) > limiterTTL && !now.Before(p.pausedUntil) && !now.Before(p.nextSend)
}

// isLimited reports whether the host has made us slower than the operator does.
func (p *hostLimiter) isLimited(now time.Time) bool {
	return now.Before(p.pausedUntil) || p.maxConnections() < int(p.maxConns) || p.complaintRate > 0
}

// classifyComplaint reports whether a reply asks us to slow down, and whether it means
// all mail: 421 ends the conversation, 4.3.2 and 4.4.5 speak of the whole
// system; 4.7.x is a policy, which greylisting makes of every first try.
func classifyComplaint(r smtpclient.Reply) (yes, all bool) {
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
