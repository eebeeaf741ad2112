// SPDX-License-Identifier: Apache-2.0

package notify

import (
	"sync"
	"time"
)

// LoadGauge shares the processors between what somebody waits for, such as that a
// message is accepted, and work that can wait, such as signing it or finding words
// in it. That costs more than all else that is done for a message, so that a burst
// would be taken at the pace at which it is done. While it is busy the work
// therefore rests after each piece, for a burst's time at most: it keeps up with a
// load that does not end. A zero LoadGauge is ready; it is safe for use by many
// goroutines.
type LoadGauge struct {
	mu          sync.Mutex
	waiting     int       // how many somebody waits for
	since       time.Time // under changed between zero and more, or the window began
	windowStart time.Time // when it began
	busy        time.Duration
	load        float64       // of the last whole window in which somebody waited
	restSpent   time.Duration // of maxRest
	restCounted time.Time     // when that was last counted
}

const (
	loadWindow = 100 * time.Millisecond
	// LowLoad is the share of time that may be busy without slowing down the work,
	// highLoad that from which on it rests most.
	LowLoad, highLoad = 0.2, 0.6
	// maxSkippedDelays is how long the work rests in all; it comes back at a quarter of
	// the time that passes.
	maxRest = 20 * time.Second
)

// Begin notes that somebody waits, until the returned func is called.
func (p *LoadGauge) Begin(now func() time.Time) (end func()) {
	p.add(now(), 1)
	return func() { p.add(now(), -1) }
}

func (p *LoadGauge) add(now time.Time, change int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.advance(now)
	p.waiting += change
}

// advance brings the figures up to now.
func (p *LoadGauge) advance(now time.Time) {
	if p.waiting > 0 {
		p.busy += now.Sub(p.since)
	}
	p.since = now
	if length := now.Sub(p.windowStart); length >= loadWindow {
		p.load = min(1, float64(p.busy)/float64(length))
		p.windowStart, p.busy = now, 0
	}
}

// RestTime says how long to rest after a piece of work that took so long: where it is
// busy all the time, so many times as long.
func (p *LoadGauge) RestTime(now time.Time, took time.Duration, times int) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.advance(now)
	p.restSpent = max(0, p.restSpent-now.Sub(p.restCounted)/4)
	p.restCounted = now
	if p.load <= LowLoad {
		return 0
	}
	d := time.Duration(float64(took) * float64(times) * min(1, (p.load-LowLoad)/(highLoad-LowLoad)))
	d = min(d, maxRest-p.restSpent)
	p.restSpent += d
	return d
}

// Load is the share of time, 0 to 1, in which somebody waits.
func (p *LoadGauge) Load(now time.Time) float64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.advance(now)
	return p.load
}
