// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"strings"
	"time"

	"github.com/mailstead/mailstead/internal/smtpclient"
)

const (
	// minPause is the first pause after a host asks us to stop. Each further pause in a row is
	// twice as long, up to maxPause.
	minPause = 5 * time.Second
	maxPause = 5 * time.Minute
	// complaintWindow is the time within which several complaints from a host, on any of its
	// connections, count as one.
	complaintWindow = time.Second
	// limiterTTL is how long after its last complaint a limiter is kept when there are many.
	limiterTTL = time.Hour
	// rcptLimitTTL is how long a host's recipient limit, learned when it hung up, is remembered. It
	// is longer than the queue waits between two attempts.
	rcptLimitTTL = 24 * time.Hour
	// minRate is the lowest rate, in messages per second, that complaints can reduce a host to.
	minRate = 0.1
	// rateWindow is the time over which the accept rate is measured; two windows count at most. A
	// longer pause starts a new measurement, so the slowest measurable rate is one message per
	// window.
	rateWindow = 10 * time.Second
	// recoverySuccesses is roughly how many successes in a row raise the rate from half of the
	// complaint rate to four times that rate. From there on only the operator's limit applies.
	recoverySuccesses = 70
)

// hostLimiter limits connections and message rate for one address: additive increase with each
// success, multiplicative decrease with each complaint, and a pause after a complaint that concerns
// all mail. It has no clock of its own. The zero value is not usable; see newHostLimiter.
type hostLimiter struct {
	maxConns      float64 // operator's limit of connections
	maxRate       float64 // operator's limit, messages per second; 0: none
	connLimit     float64 // current limit of connections, at least 1
	rate          float64 // current limit, messages per second; 0: none
	complaintRate float64 // rate at the last complaint; 0: none, or recovered
	nextSend      time.Time

	pausedUntil       time.Time   // send nothing before then
	pauses            int         // number of pauses in a row
	lastComplaint     time.Time   // time of the last complaint
	current, previous rateCounter // accepted messages in the last two rate windows
	lastAccepted      time.Time
	reason            string // text of the last complaint, without a message's addresses

	maxRcpts int       // recipients of a message after which the host hung up
	hungUpAt time.Time // time of the last hangup

	avgSlotTime time.Duration // average time that a session holds a slot
}

func newHostLimiter(most int, top float64) *hostLimiter {
	return &hostLimiter{maxConns: float64(most), connLimit: float64(most), maxRate: top, rate: top}
}

// maxConnections returns how many connections are allowed now.
func (p *hostLimiter) maxConnections() int { return int(p.connLimit) }

// rateCounter counts messages since a point in time.
type rateCounter struct {
	since time.Time
	count int
}

// countAccepted counts an accepted message for the rate.
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

// acceptRate returns the recent rate, in messages per second, at which the host accepted mail. It
// returns false if there were too few messages to measure.
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

// recordSuccess records an accepted message, and raises the limits.
func (p *hostLimiter) recordSuccess(now time.Time) {
	p.countAccepted(now)
	if now.Before(p.pausedUntil) { // a connection that was still open when the pause began
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

// recordRateLimitReply lowers the limits. If all is set, the complaint concerns all mail, and the
// host is paused too.
func (p *hostLimiter) recordRateLimitReply(now time.Time, all bool, text string) {
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
		p.complaintRate = max(was, 2*minRate) // so that the slowest host recovers in as few steps
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

// recordSlotTime records how long a session held its slot.
func (p *hostLimiter) recordSlotTime(d time.Duration) { p.avgSlotTime += (d - p.avgSlotTime) / 8 }

// estimateWait estimates the wait behind that many waiting sessions, from minRetryDelay to
// maxRetryDelay.
func (p *hostLimiter) estimateWait(waiting int) time.Duration {
	return min(max(p.avgSlotTime*time.Duration(waiting)/time.Duration(p.maxConnections()), minRetryDelay), maxRetryDelay)
}

// recordConnRefused records that the host refuses connections beyond that many.
func (p *hostLimiter) recordConnRefused(talking int, text string) {
	p.reason = text
	p.connLimit = max(1, min(p.connLimit/2, float64(talking)))
}

// recordHangup records that the host hung up after that many recipients of a message.
func (p *hostLimiter) recordHangup(now time.Time, after int) { p.maxRcpts, p.hungUpAt = after, now }

// maxRecipients returns how many of a message's recipients one transaction may have.
func (p *hostLimiter) maxRecipients(now time.Time, of int) int {
	if now.Sub(p.hungUpAt) >= rcptLimitTTL {
		return of
	}
	return min(of, p.maxRcpts)
}

// nextSendTime returns when the next message may be sent. A burst of one second's messages is
// allowed.
func (p *hostLimiter) nextSendTime(now time.Time) time.Time {
	if p.rate <= 0 {
		return now
	}
	if first := now.Add(-max(time.Second-p.sendInterval(), 0)); p.nextSend.Before(first) {
		p.nextSend = first
	}
	return p.nextSend
}

// sendInterval returns the time from one message to the next.
func (p *hostLimiter) sendInterval() time.Duration {
	return time.Duration(float64(time.Second) / p.rate)
}

// recordSend records that a message is being sent.
func (p *hostLimiter) recordSend() {
	if p.rate > 0 {
		p.nextSend = p.nextSend.Add(p.sendInterval())
	}
}

// isDefault reports whether the limiter has no state worth keeping.
func (p *hostLimiter) isDefault(now time.Time) bool {
	return p.connLimit >= p.maxConns && p.complaintRate == 0 && p.pauses == 0 && now.Sub(p.hungUpAt) >= rcptLimitTTL && !now.Before(p.pausedUntil) && !now.Before(p.nextSend)
}

// isExpired reports whether the last complaint is older than limiterTTL and no pause or send delay
// is left.
func (p *hostLimiter) isExpired(now time.Time) bool {
	return now.Sub(p.lastComplaint) > limiterTTL && !now.Before(p.pausedUntil) && !now.Before(p.nextSend)
}

// isLimited reports whether the host has made us slower than the operator's limits.
func (p *hostLimiter) isLimited(now time.Time) bool {
	return now.Before(p.pausedUntil) || p.maxConnections() < int(p.maxConns) || p.complaintRate > 0
}

// classifyRateLimitReply reports whether a reply asks us to slow down, and whether that concerns
// all mail. 421 ends the session; 4.3.2 and 4.4.5 are about the whole system. 4.7.x is a policy,
// and greylisting, which uses it for every first attempt, is no complaint.
func classifyRateLimitReply(r smtpclient.Reply) (yes, all bool) {
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
