// SPDX-License-Identifier: Apache-2.0

package notify

import (
	"sync"
	"time"
)

// LoadGauge measures the load of foreground requests (accepting a message, for example), so that
// background work (signing or indexing it) can pause. Background work costs more than the rest of
// a message's processing, and would slow down a burst of requests. So while the load is high, the
// work rests after each piece, but only for the length of a burst: it keeps up with a permanent
// load. A zero LoadGauge is ready to use, and safe for use by many goroutines.
type LoadGauge struct {
	mu          sync.Mutex
	waiting     int       // number of foreground requests
	since       time.Time // last update of busy
	windowStart time.Time // start of the current window
	busy        time.Duration
	load        float64       // load in the last complete window
	restSpent   time.Duration // used part of maxRest
	restCounted time.Time     // last update of restSpent
}

const (
	loadWindow = 100 * time.Millisecond
	// LowLoad is the load up to which background work does not rest, highLoad the
	// load from which it rests longest.
	LowLoad, highLoad = 0.2, 0.6
	// maxRest is how long the work may rest in total. A quarter of the time that passes
	// is added back.
	maxRest = 20 * time.Second
)

// Begin counts a foreground request until the returned func is called.
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

// advance updates busy and load.
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

// RestTime returns how long to rest after a piece of background work. At full load this is times
// as long as the work took.
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

// Load returns the share of time, 0 to 1, in which there are foreground requests.
func (p *LoadGauge) Load(now time.Time) float64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.advance(now)
	return p.load
}
