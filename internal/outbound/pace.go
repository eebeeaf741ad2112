// SPDX-License-Identifier: Apache-2.0

package outbound

import (
	"sync"
	"time"
)

// pace shares the processors between accepting and signing. An RSA signature
// costs more than everything else that is done for a message, so that a burst
// would be accepted at the pace at which it is signed. While accepting is busy,
// signing therefore rests after each signature, for a burst's time at most: a
// load that does not end is delivered as fast as it is taken. A zero pace is
// ready.
type pace struct {
	mu     sync.Mutex
	under  int       // how many messages are being accepted
	since  time.Time // under changed between zero and more, or the window began
	window time.Time // when it began
	busy   time.Duration
	share  float64       // of the last whole window in which something was being accepted
	spent  time.Duration // of paceBurst
	earned time.Time     // when that was last counted
}

const (
	paceWindow = 100 * time.Millisecond
	// paceFree is the share of time that accepting may take without slowing
	// down what is signed, paceFull that from which on signing rests most.
	paceFree, paceFull = 0.2, 0.6
	// paceRest is how many times the duration of a signature is then rested.
	paceRest = 6
	// paceBurst is how long signing rests in all; it comes back at a quarter
	// of the time that passes.
	paceBurst = 20 * time.Second
)

// accepting notes that a message is being accepted until the returned func is
// called.
func (p *pace) accepting(now func() time.Time) (done func()) {
	p.note(now(), 1)
	return func() { p.note(now(), -1) }
}

func (p *pace) note(now time.Time, change int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.count(now)
	p.under += change
}

// count brings the figures up to now.
func (p *pace) count(now time.Time) {
	if p.under > 0 {
		p.busy += now.Sub(p.since)
	}
	p.since = now
	if length := now.Sub(p.window); length >= paceWindow {
		p.share = min(1, float64(p.busy)/float64(length))
		p.window, p.busy = now, 0
	}
}

// rest says how long to rest after a signature that took so long.
func (p *pace) rest(now time.Time, took time.Duration) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.count(now)
	p.spent = max(0, p.spent-now.Sub(p.earned)/4)
	p.earned = now
	if p.share <= paceFree {
		return 0
	}
	d := time.Duration(float64(took) * paceRest * min(1, (p.share-paceFree)/(paceFull-paceFree)))
	d = min(d, paceBurst-p.spent)
	p.spent += d
	return d
}

// load is the share of time in which something is being accepted.
func (p *pace) load(now time.Time) float64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.count(now)
	return p.share
}
