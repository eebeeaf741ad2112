// SPDX-License-Identifier: Apache-2.0

package ratelimit

import (
	"sync"
	"time"

	"github.com/mailstead/mailstead/internal/lru"
)

// Limiter is a rate limit with a token bucket for each key: a network, an address or an account.
type Limiter[K comparable] struct {
	Now func() time.Time // the clock

	rate  float64 // tokens per second
	burst float64

	mu      sync.Mutex
	buckets lru.Map[K, bucket]
}

type bucket struct {
	tokens float64
	at     time.Time
}

// NewLimiter returns a Limiter of n per time for each key, with a burst of n. It remembers at most
// keys keys.
func NewLimiter[K comparable](n int, per time.Duration, keys int) *Limiter[K] {
	return &Limiter[K]{Now: time.Now, rate: float64(n) / per.Seconds(), burst: float64(n),
		buckets: lru.Map[K, bucket]{Max: keys}}
}

// Allow takes n tokens from a key's bucket if it has them. Otherwise it takes none and returns how
// long until it will have them; 0 if never, since n is more than the limit itself.
func (l *Limiter[K]) Allow(key K, n int) (wait time.Duration, ok bool) {
	now := l.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	b, fresh := l.buckets.GetOrCreate(key)
	if fresh {
		b.tokens = l.burst
	} else if passed := now.Sub(b.at); passed > 0 {
		b.tokens = min(l.burst, b.tokens+passed.Seconds()*l.rate)
	}
	if fresh || now.After(b.at) { // a clock set back refills nothing twice
		b.at = now
	}
	want := float64(n)
	if want <= b.tokens {
		b.tokens -= want
		return 0, true
	}
	if want > l.burst {
		return 0, false
	}
	return time.Duration((want-b.tokens)/l.rate*float64(time.Second)).Truncate(time.Millisecond) + time.Millisecond, false
}
