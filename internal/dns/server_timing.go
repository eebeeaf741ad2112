// SPDX-License-Identifier: Apache-2.0

package dns

import (
	"sync"
	"time"
)

const (
	// initialTimeout is how long a question waits for an answer before it is sent
	// again, while nothing is known of the server.
	initialTimeout = 400 * time.Millisecond
	// minTimeout and maxMeasuredTimeout bound what is measured, maxWait what it
	// doubles to.
	minTimeout         = 100 * time.Millisecond
	maxMeasuredTimeout = time.Second
	maxTimeout         = 3 * time.Second
	// maxLosses is after how many questions in a row without an answer a
	// server is asked after the others.
	maxLosses = 2
	// probeInterval is how often such a server is asked first all the same.
	probeInterval = 10 * time.Second
)

// serverTiming is how fast a server answers, by the estimator of RFC 6298, and
// whether it does. Each sending of a question has a port and an id of its own, so
// that every answer can be measured (Karn's rule has nothing to leave out).
type serverTiming struct {
	mu         sync.Mutex
	srtt       time.Duration // SRTT; 0: nothing is known
	rttvar     time.Duration // RTTVAR
	losses     int           // questions in a row without an answer
	nextProbe  time.Time     // when it is asked first again
	lastAnswer time.Time     // when it answered last
}

// timeout is how long to wait for an answer.
func (t *serverTiming) timeout() time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.srtt == 0 {
		return initialTimeout
	}
	return min(max(t.srtt+4*t.rttvar, minTimeout), maxMeasuredTimeout)
}

// recordResponse notes how long an answer took (RFC 6298 §2.2 and §2.3). More than a
// second counts as one: a slow domain says little about the server asked for it.
func (t *serverTiming) recordAnswer(took time.Duration, now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	took = min(max(took, time.Microsecond), maxMeasuredTimeout) // 0 stands for nothing known
	if t.srtt == 0 {
		t.srtt, t.rttvar = took, took/2
	} else {
		t.rttvar = (3*t.rttvar + (t.srtt - took).Abs()) / 4
		t.srtt = (7*t.srtt + took) / 8
	}
	t.losses, t.lastAnswer = 0, now
}

// recordLoss notes that a question was not answered in time.
func (t *serverTiming) recordLoss(now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.losses++; t.losses == maxLosses {
		t.nextProbe = now.Add(probeInterval)
	}
}

// isUnresponsive reports whether the server is asked after the others, since it does not
// answer. Now and then one question finds out whether it does again.
func (t *serverTiming) isUnresponsive(now time.Time) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.losses < maxLosses {
		return false
	}
	if now.Before(t.nextProbe) {
		return true
	}
	t.nextProbe = now.Add(probeInterval)
	return false
}

// answeredSince reports whether the server has answered anything since a moment.
func (t *serverTiming) answeredSince(moment time.Time) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return !t.lastAnswer.Before(moment)
}
