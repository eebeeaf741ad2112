// SPDX-License-Identifier: Apache-2.0

package limit

import (
	"context"
	"math"
	"time"

	"github.com/mailstead/mailstead/internal/fault"
)

// bucket has a token for each request that may be made.
type bucket struct {
	tokens float64
	at     time.Time // when they were counted; zero for a full one
}

// fill counts the tokens that a bucket has now, and returns how many fit in.
func (b *bucket) fill(r Rates, now time.Time) (most float64) {
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

// wait is how long until a bucket has a token, or one more.
func (b *bucket) wait(r Rates) time.Duration {
	missing := math.Floor(b.tokens) + 1 - b.tokens
	return time.Duration(math.Ceil(missing / float64(r.RequestsPerSecond) * float64(time.Second)))
}

func (b *bucket) gauge(r Rates, of Who) Gauge {
	g := Gauge{
		Name: "requests", Key: of.Key, Limit: r.burst(), Left: int64(b.tokens),
		Window: time.Duration(math.Ceil(float64(r.burst())/float64(r.RequestsPerSecond))) * time.Second,
	}
	if g.Left < g.Limit {
		g.Reset = b.wait(r)
	}
	return g
}

// Request counts a request to the API. One too many is a fault.Limited, with
// when to come again, and isn't counted. The gauges are those of the limits that
// there are: the account's, then the key's.
func (l *Limits) Request(ctx context.Context, w Who) ([]Gauge, error) {
	a, err := l.account(ctx, w.Account)
	if err != nil {
		return nil, err
	}
	now := l.Now()
	a.mu.Lock()
	defer a.mu.Unlock()
	type one struct {
		*bucket
		Rates
		of Who
	}
	all := make([]one, 0, 2)
	if a.set.RequestsPerSecond > 0 {
		all = append(all, one{&a.own.bucket, a.set.Rates, Who{}})
	}
	if m := a.key(w, now); m != nil && w.Own.RequestsPerSecond > 0 {
		all = append(all, one{&m.bucket, w.Own, w})
	}
	var wait time.Duration
	var by one
	for _, b := range all {
		if b.fill(b.Rates, now); b.tokens < 1 && b.wait(b.Rates) > wait {
			wait, by = b.wait(b.Rates), b
		}
	}
	gauges := make([]Gauge, 0, 2)
	for _, b := range all {
		if wait == 0 {
			b.tokens--
		}
		gauges = append(gauges, b.gauge(b.Rates, b.of))
	}
	if wait == 0 {
		return gauges, nil
	}
	f := fault.New(fault.Limited, "too_many_requests", "%s may make %d requests a second. Slow down.", subject(by.of.Key), by.RequestsPerSecond)
	f.Retry = wait
	return gauges, f
}
