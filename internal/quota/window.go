// SPDX-License-Identifier: Apache-2.0

package quota

import (
	"fmt"
	"time"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/fault"
)

// limitName is a limit of an hour or a day.
type limitName int

const (
	sendsPerHour limitName = iota
	sendsPerDay
	recipientsPerDay
	limitCount
)

// String is the limit's name in rows, events and the API.
func (n limitName) String() string {
	return [...]string{"sends_per_hour", "sends_per_day", "recipients_per_day"}[n]
}

func (n limitName) window() time.Duration {
	if n == sendsPerHour {
		return time.Hour
	}
	return 24 * time.Hour
}

// description says what the limit allows.
func (c *counter) description() string {
	who := consumerText(c.key)
	return fmt.Sprintf([...]string{"%s may send %d messages an hour", "%s may send %d messages a day", "%s may write to %d recipients a day"}[c.name], who, c.limit)
}

func (r Rates) limit(n limitName) int64 {
	return [...]int64{r.SendsPerHour, r.SendsPerDay, r.RecipientsPerDay}[n]
}

// amounts are what something takes of each limit.
type amounts [limitCount]int64

// pool is what a node holds of a limit in one window.
type pool struct {
	start     time.Time // of the window
	drawn     int64     // by all nodes, as was seen last
	unspent   int64     // of that, what this node has and did not spend
	readAt    time.Time // when drawn was seen; zero for never
	usedAt    time.Time // when spare was last spent from
	lastBlock int64     // the size of the last block
}

// advance turns the pool to the window of now. What was left in a former one is of no
// more use to anybody.
func (p *pool) advance(n limitName, now time.Time) {
	if start := now.UTC().Truncate(n.window()); !p.start.Equal(start) {
		*p = pool{start: start}
	}
}

// counter is one limit that something counts by.
type counter struct {
	*pool
	name     limitName
	key      db.ID // whose it is; 0: the account's
	limit    int64 // 0 for none: it is counted all the same
	need     int64 // not had yet
	reserved int64 // had, and not given back
	start    time.Time
	extra    int64 // to be drawn beside need
}

// unlimitedAmount stands for a limit where there is none.
const unlimitedAmount = 1 << 50

func (c *counter) ceiling() int64 {
	if c.limit == 0 {
		return unlimitedAmount
	}
	return c.limit
}

// remaining is what can be had without asking, in all likelihood.
func (c *counter) remaining() int64 { return max(0, c.ceiling()-c.drawn+c.unspent) }

// available is what can be had without drawing. A limit that was lowered counts at
// once.
func (c *counter) available() int64 { return max(0, min(c.unspent, c.remaining())) }

func (c *counter) endsAt() time.Time { return c.start.Add(c.name.window()) }

// counters are the limits that who counts by: all of the account's, and those
// that the key has of its own. a.mu is held.
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

// checkPossible returns fault.Denied for more than a limit allows in its whole
// window: no waiting helps.
func checkPossible(all []counter) error {
	for i := range all {
		if c := &all[i]; c.need > c.ceiling() {
			return fault.New(fault.Denied, "over_"+c.name.String(), "%s. This is more than that at once.", c.description())
		}
	}
	return nil
}

// exhaustedError is the fault.RateLimited of a limit that is used up.
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

// Status is how a limit stands, as far as this node knows: others may have drawn
// since.
type Status struct {
	Name      string // requests, sends_per_hour, sends_per_day, recipients_per_day
	Key       db.ID  // the key whose own limit it is; 0: the account's
	Limit     int64
	Remaining int64
	Window    time.Duration
	Reset     time.Duration // until there is more; 0 while nothing is used
}

func (c *counter) status(now time.Time) Status {
	return Status{Name: c.name.String(), Key: c.key, Limit: c.limit, Remaining: min(c.remaining(), c.limit), Window: c.name.window(), Reset: c.endsAt().Sub(now)}
}
