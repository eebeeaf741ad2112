// SPDX-License-Identifier: Apache-2.0

package quota

import (
	"context"
	"math"
	"time"

	"github.com/mailstead/mailstead/internal/fault"
)

// bucket is a token bucket for requests.
type bucket struct {
	tokens float64
	at     time.Time // when they were counted; zero for a full one
}

// refill adds the tokens since the last call, and returns the capacity of the bucket.
func (b *bucket) refill(r Rates, now time.Time) (most float64) {
	most = float64(r.burst())
	if b.at.IsZero() {
		b.tokens = most
	} else if passed := now.Sub(b.at); passed > 0 { // a clock set back fills nothing twice
		b.tokens += passed.Seconds() * float64(r.RequestsPerSecond)
	}
	b.tokens = min(b.tokens, most)
	if now.After(b.at) {
		b.at = now
	}
	return most
}

func (r Rates) burst() int64 {
	if r.Burst > 0 {
		return r.Burst
	}
	return r.RequestsPerSecond
}

// untilNextToken returns how long until a bucket has one more whole token.
func (b *bucket) untilNextToken(r Rates) time.Duration {
	missing := math.Floor(b.tokens) + 1 - b.tokens
	return time.Duration(math.Ceil(missing / float64(r.RequestsPerSecond) * float64(time.Second)))
}

func (b *bucket) status(r Rates, of Consumer) Status {
	g := Status{
		Name: "requests", Key: of.Key, Limit: r.burst(), Remaining: int64(b.tokens),
		Window: time.Duration(math.Ceil(float64(r.burst())/float64(r.RequestsPerSecond))) * time.Second,
	}
	if g.Remaining < g.Limit {
		g.Reset = b.untilNextToken(r)
	}
	return g
}

// CountRequest counts an API request. A request above the limit is not counted, and returns a
// fault.RateLimited with RetryAfter. The statuses are those of the existing limits: the account's,
// then the key's.
func (l *Limiter) CountRequest(ctx context.Context, w Consumer) ([]Status, error) {
	a, err := l.load(ctx, w.Account)
	if err != nil {
		return nil, err
	}
	now := l.Now()
	a.mu.Lock()
	defer a.mu.Unlock()
	type one struct {
		*bucket
		Rates
		of Consumer
	}
	all := make([]one, 0, 2)
	if a.limits.RequestsPerSecond > 0 {
		all = append(all, one{&a.meter.bucket, a.limits.Rates, Consumer{}})
	}
	if m := a.keyMeter(w, now); m != nil && w.KeyRates.RequestsPerSecond > 0 {
		all = append(all, one{&m.bucket, w.KeyRates, w})
	}
	var wait time.Duration
	var by one
	for _, b := range all {
		if b.refill(b.Rates, now); b.tokens < 1 && b.untilNextToken(b.Rates) > wait {
			wait, by = b.untilNextToken(b.Rates), b
		}
	}
	gauges := make([]Status, 0, 2)
	for _, b := range all {
		if wait == 0 {
			b.tokens--
		}
		gauges = append(gauges, b.status(b.Rates, b.of))
	}
	if wait == 0 {
		return gauges, nil
	}
	f := fault.New(fault.RateLimited, "too_many_requests", "%s may make %d requests a second. Slow down.", consumerText(by.of.Key), by.RequestsPerSecond)
	f.RetryAfter = wait
	return gauges, f
}
