// SPDX-License-Identifier: Apache-2.0

package dns

import (
	"sync"
	"time"
)

const (
	// initialTimeout is how long a question waits for a server without measurements before it is
	// sent again.
	initialTimeout = 400 * time.Millisecond
	// minTimeout and maxMeasuredTimeout bound the measured timeout. maxTimeout bounds the timeout
	// after it doubles.
	minTimeout         = 100 * time.Millisecond
	maxMeasuredTimeout = time.Second
	maxTimeout         = 3 * time.Second
	// maxLosses is how many unanswered questions in a row make a server unresponsive, so that it is
	// asked after the others.
	maxLosses = 2
	// probeInterval is how often an unresponsive server is asked first nevertheless.
	probeInterval = 10 * time.Second
)

// serverTiming measures how fast a server answers, by the estimator of RFC 6298, and whether it
// answers. Each transmission has its own port and id, so every answer can be measured, and Karn's
// rule does not apply.
type serverTiming struct {
	mu         sync.Mutex
	srtt       time.Duration // SRTT; 0: no measurement yet
	rttvar     time.Duration // RTTVAR
	losses     int           // number of unanswered questions in a row
	nextProbe  time.Time     // when the server is asked first again
	lastAnswer time.Time     // time of the last answer
}

// timeout returns how long to wait for an answer.
func (t *serverTiming) timeout() time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.srtt == 0 {
		return initialTimeout
	}
	return min(max(t.srtt+4*t.rttvar, minTimeout), maxMeasuredTimeout)
}

// recordAnswer records how long an answer took (RFC 6298 §2.2 and §2.3), at most
// maxMeasuredTimeout: a slow domain says little about the recursive server.
func (t *serverTiming) recordAnswer(took time.Duration, now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	took = min(max(took, time.Microsecond), maxMeasuredTimeout) // 0 means no measurement
	if t.srtt == 0 {
		t.srtt, t.rttvar = took, took/2
	} else {
		t.rttvar = (3*t.rttvar + (t.srtt - took).Abs()) / 4
		t.srtt = (7*t.srtt + took) / 8
	}
	t.losses, t.lastAnswer = 0, now
}

// recordLoss records that a question was not answered in time.
func (t *serverTiming) recordLoss(now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.losses++; t.losses == maxLosses {
		t.nextProbe = now.Add(probeInterval)
	}
}

// isUnresponsive reports whether the server is to be asked after the others because it does not
// answer. Once per probeInterval it returns false, so that one question finds out whether the
// server answers again.
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

// answeredSince reports whether the server has answered anything since that moment.
func (t *serverTiming) answeredSince(moment time.Time) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return !t.lastAnswer.Before(moment)
}
