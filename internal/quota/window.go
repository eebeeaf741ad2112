// SPDX-License-Identifier: Apache-2.0

package quota

import (
	"fmt"
	"time"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/fault"
)

// limitName identifies an hourly or daily limit.
type limitName int

const (
	sendsPerHour limitName = iota
	sendsPerDay
	recipientsPerDay
	limitCount
)

// String returns the limit's name in rows, events and the API.
func (n limitName) String() string {
	return [...]string{"sends_per_hour", "sends_per_day", "recipients_per_day"}[n]
}

func (n limitName) window() time.Duration {
	if n == sendsPerHour {
		return time.Hour
	}
	return 24 * time.Hour
}

// description describes the limit in a sentence.
func (c *counter) description() string {
	who := consumerText(c.key)
	return fmt.Sprintf([...]string{"%s may send %d messages an hour", "%s may send %d messages a day", "%s may write to %d recipients a day"}[c.name], who, c.limit)
}

func (r Rates) limit(n limitName) int64 {
	return [...]int64{r.SendsPerHour, r.SendsPerDay, r.RecipientsPerDay}[n]
}

// amounts are the quantities taken from each limit.
type amounts [limitCount]int64

// pool is a node's drawn quota of a limit in one window.
type pool struct {
	start     time.Time // start of the window
	drawn     int64     // drawn by all nodes, as last read
	unspent   int64     // this node's unspent part of drawn
	readAt    time.Time // when drawn was read; zero for never
	usedAt    time.Time // when unspent was last spent from
	lastBlock int64     // size of the last block
}

// advance moves the pool to the current window. Unspent quota of an earlier window is dropped.
func (p *pool) advance(n limitName, now time.Time) {
	if start := now.UTC().Truncate(n.window()); !p.start.Equal(start) {
		*p = pool{start: start}
	}
}

// counter is one limit that applies to a consumer.
type counter struct {
	*pool
	name     limitName
	key      db.ID // owner of the limit; 0: the account
	limit    int64 // 0 for none: usage is still counted
	need     int64 // still to be reserved
	reserved int64 // reserved and not released
	start    time.Time
	extra    int64 // to be drawn in addition to need
}

// unlimitedAmount is the ceiling of a counter without a limit.
const unlimitedAmount = 1 << 50

func (c *counter) ceiling() int64 {
	if c.limit == 0 {
		return unlimitedAmount
	}
	return c.limit
}

// remaining returns how much is probably left, without a query.
func (c *counter) remaining() int64 { return max(0, c.ceiling()-c.drawn+c.unspent) }

// available returns how much can be reserved without a draw. A lowered limit takes effect at once.
func (c *counter) available() int64 { return max(0, min(c.unspent, c.remaining())) }

func (c *counter) endsAt() time.Time { return c.start.Add(c.name.window()) }

// counters returns the limits that apply to a consumer: all of the account's, and the key's own.
// a.mu is held.
func (a *accountState) counters(w Consumer, now time.Time, of amounts) []counter {
	all := make([]counter, 0, 2*limitCount)
	add := func(m *meter, key db.ID, r Rates, also bool) {
		for n := range limitCount {
			if r.limit(n) == 0 && !also {
				continue
			}
			p := &m.pools[n]
			p.advance(n, now)
			all = append(all, counter{pool: p, name: n, key: key, limit: r.limit(n), need: of[n], start: p.start})
		}
	}
	if !w.keyOnly {
		add(&a.meter, 0, a.limits.Rates, true)
	}
	if m := a.keyMeter(w, now); m != nil {
		add(m, w.Key, w.KeyRates, false)
	}
	return all
}

// checkPossible returns a fault.Denied for more than a limit allows in its whole window: waiting
// does not help.
func checkPossible(all []counter) error {
	for i := range all {
		if c := &all[i]; c.need > c.ceiling() {
			return fault.New(fault.Denied, "over_"+c.name.String(), "%s. This is more than that at once.", c.description())
		}
	}
	return nil
}

// exhaustedError returns the fault.RateLimited of an exhausted limit.
func (c *counter) exhaustedError(now time.Time) error {
	f := fault.New(fault.RateLimited, c.name.String()+"_exceeded", "%s; too few of them are left. Go on at %s.", c.description(), c.endsAt().Format("2006-01-02 15:04 UTC"))
	f.RetryAfter = c.endsAt().Sub(now)
	return f
}

func consumerText(key db.ID) string {
	if key != 0 {
		return "This API key"
	}
	return "This account"
}

// Status is the status of a limit, as far as this node knows: other nodes may have drawn since.
type Status struct {
	Name      string // requests, sends_per_hour, sends_per_day, recipients_per_day
	Key       db.ID  // the key whose own limit it is; 0: the account's
	Limit     int64
	Remaining int64
	Window    time.Duration
	Reset     time.Duration // time until more is available; 0 while nothing is used
}

func (c *counter) status(now time.Time) Status {
	return Status{Name: c.name.String(), Key: c.key, Limit: c.limit, Remaining: min(c.remaining(), c.limit), Window: c.name.window(), Reset: c.endsAt().Sub(now)}
}
