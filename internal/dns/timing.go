// SPDX-License-Identifier: Apache-2.0

package dns

import (
	"sync"
	"time"
)

const (
	// firstWait is how long a question waits for an answer before it is sent
	// again, while nothing is known of the server.
	firstWait = 400 * time.Millisecond
	// shortestWait and longestFirst bound what is measured, longestWait what it
	// doubles to.
	shortestWait = 100 * time.Millisecond
	longestFirst = time.Second
	longestWait  = 3 * time.Second
	// lostInRow is after how many questions in a row without an answer a
	// server is asked after the others.
	lostInRow = 2
	// probeEvery is how often such a server is asked first all the same.
	probeEvery = 10 * time.Second
)

// timing is how fast a server answers, by the estimator of RFC 6298, and
// whether it does. Each sending of a question has a port and an id of its own, so
// that every answer can be measured (Karn's rule has nothing to leave out).
type timing struct {
	mu     sync.Mutex
	smooth time.Duration // SRTT; 0: nothing is known
	varies time.Duration // RTTVAR
	lost   int           // questions in a row without an answer
	probe  time.Time     // when it is asked first again
	heard  time.Time     // when it answered last
}

// wait is how long to wait for an answer.
func (t *timing) wait() time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.smooth == 0 {
		return firstWait
	}
	return min(max(t.smooth+4*t.varies, shortestWait), longestFirst)
}

// answered notes how long an answer took (RFC 6298 §2.2 and §2.3). More than a
// second counts as one: a slow domain says little about the server asked for it.
func (t *timing) answered(took time.Duration, now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	took = min(max(took, time.Microsecond), longestFirst) // 0 stands for nothing known
	if t.smooth == 0 {
		t.smooth, t.varies = took, took/2
	} else {
		t.varies = (3*t.varies + (t.smooth - took).Abs()) / 4
		t.smooth = (7*t.smooth + took) / 8
	}
	t.lost, t.heard = 0, now
}

// missed notes that a question was not answered in time.
func (t *timing) missed(now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.lost++; t.lost == lostInRow {
		t.probe = now.Add(probeEvery)
	}
}

// last reports whether the server is asked after the others, since it does not
// answer. Now and then one question finds out whether it does again.
func (t *timing) last(now time.Time) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.lost < lostInRow {
		return false
	}
	if now.Before(t.probe) {
		return true
	}
	t.probe = now.Add(probeEvery)
	return false
}

// heardSince reports whether the server has answered anything since a moment.
func (t *timing) heardSince(moment time.Time) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return !t.heard.Before(moment)
}
