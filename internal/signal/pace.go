// SPDX-License-Identifier: Apache-2.0

package signal

import (
	"sync"
	"time"
)

// Pace shares the processors between what somebody waits for, such as that a
// message is accepted, and work that can wait, such as signing it or finding words
// in it. That costs more than all else that is done for a message, so that a burst
// would be taken at the pace at which it is done. While it is busy the work
// therefore rests after each piece, for a burst's time at most: it keeps up with a
// load that does not end. A zero Pace is ready; it is safe for use by many
// goroutines.
type Pace struct {
	mu     sync.Mutex
	under  int       // how many somebody waits for
	since  time.Time // under changed between zero and more, or the window began
	window time.Time // when it began
	busy   time.Duration
	share  float64       // of the last whole window in which somebody waited
	spent  time.Duration // of paceBurst
	earned time.Time     // when that was last counted
}

const (
	paceWindow = 100 * time.Millisecond
	// PaceFree is the share of time that may be busy without slowing down the work,
	// paceFull that from which on it rests most.
	PaceFree, paceFull = 0.2, 0.6
	// paceBurst is how long the work rests in all; it comes back at a quarter of
	// the time that passes.
	paceBurst = 20 * time.Second
)

// Begin notes that somebody waits, until the returned func is called.
func (p *Pace) Begin(now func() time.Time) (end func()) {
	p.note(now(), 1)
	return func() { p.note(now(), -1) }
}

func (p *Pace) note(now time.Time, change int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.count(now)
	p.under += change
}

// count brings the figures up to now.
func (p *Pace) count(now time.Time) {
	if p.under > 0 {
		p.busy += now.Sub(p.since)
	}
	p.since = now
	if length := now.Sub(p.window); length >= paceWindow {
		p.share = min(1, float64(p.busy)/float64(length))
		p.window, p.busy = now, 0
	}
}

// Rest says how long to rest after a piece of work that took so long: where it is
// busy all the time, so many times as long.
func (p *Pace) Rest(now time.Time, took time.Duration, times int) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.count(now)
	p.spent = max(0, p.spent-now.Sub(p.earned)/4)
	p.earned = now
	if p.share <= PaceFree {
		return 0
	}
	d := time.Duration(float64(took) * float64(times) * min(1, (p.share-PaceFree)/(paceFull-PaceFree)))
	d = min(d, paceBurst-p.spent)
	p.spent += d
	return d
}

// Load is the share of time, 0 to 1, in which somebody waits.
func (p *Pace) Load(now time.Time) float64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.count(now)
	return p.share
}
