// SPDX-License-Identifier: Apache-2.0

package limit

import (
	"fmt"
	"time"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/fault"
)

// name is a limit of an hour or a day.
type name int

const (
	sendsPerHour name = iota
	sendsPerDay
	recipientsPerDay
	names
)

// String is the limit's name in rows, events and the API.
func (n name) String() string {
	return [...]string{"sends_per_hour", "sends_per_day", "recipients_per_day"}[n]
}

func (n name) window() time.Duration {
	if n == sendsPerHour {
		return time.Hour
	}
	return 24 * time.Hour
}

// may says what the limit allows.
func (c *counter) may() string {
	who := subject(c.key)
	return fmt.Sprintf([...]string{"%s may send %d messages an hour", "%s may send %d messages a day", "%s may write to %d recipients a day"}[c.name], who, c.limit)
}

func (r Rates) of(n name) int64 {
	return [...]int64{r.SendsPerHour, r.SendsPerDay, r.RecipientsPerDay}[n]
}

// amounts are what something takes of each limit.
type amounts [names]int64

// pool is what a node holds of a limit in one window.
type pool struct {
	start time.Time // of the window
	drawn int64     // by all nodes, as was seen last
	spare int64     // of that, what this node has and did not spend
	read  time.Time // when drawn was seen; zero for never
	used  time.Time // when spare was last spent from
	block int64     // the size of the last block
}

// at turns the pool to the window of now. What was left in a former one is of no
// more use to anybody.
func (p *pool) at(n name, now time.Time) {
	if start := now.UTC().Truncate(n.window()); !p.start.Equal(start) {
		*p = pool{start: start}
	}
}

// counter is one limit that something counts by.
type counter struct {
	*pool
	name  name
	key   db.ID // whose it is; 0: the account's
	limit int64 // 0 for none: it is counted all the same
	need  int64 // not had yet
	mine  int64 // had, and not given back
	start time.Time
	extra int64 // to be drawn beside need
}

// unlimited stands for a limit where there is none.
const unlimited = 1 << 50

func (c *counter) most() int64 {
	if c.limit == 0 {
		return unlimited
	}
	return c.limit
}

// left is what can be had without asking, in all likelihood.
func (c *counter) left() int64 { return max(0, c.most()-c.drawn+c.spare) }

// had is what can be had without drawing. A limit that was lowered counts at
// once.
func (c *counter) had() int64 { return max(0, min(c.spare, c.left())) }

func (c *counter) ends() time.Time { return c.start.Add(c.name.window()) }

// counters are the limits that who counts by: all of the account's, and those
// that the key has of its own. a.mu is held.
func (a *account) counters(w Who, now time.Time, of amounts) []counter {
	all := make([]counter, 0, 2*names)
	add := func(m *meter, key db.ID, r Rates, also bool) {
		for n := range names {
			if r.of(n) == 0 && !also {
				continue
			}
			p := &m.pools[n]
			p.at(n, now)
			all = append(all, counter{pool: p, name: n, key: key, limit: r.of(n), need: of[n], start: p.start})
		}
	}
	if !w.apart {
		add(&a.own, 0, a.set.Rates, true)
	}
	if m := a.key(w, now); m != nil {
		add(m, w.Key, w.Own, false)
	}
	return all
}

// impossible returns fault.Denied for more than a limit allows in its whole
// window: no waiting helps.
func impossible(all []counter) error {
	for i := range all {
		if c := &all[i]; c.need > c.most() {
			return fault.New(fault.Denied, "over_"+c.name.String(), "%s. This is more than that at once.", c.may())
		}
	}
	return nil
}

// exhausted is the fault.Limited of a limit that is used up.
func (c *counter) exhausted(now time.Time) error {
	f := fault.New(fault.Limited, c.name.String()+"_exceeded", "%s; too few of them are left. Go on at %s.", c.may(), c.ends().Format("2006-01-02 15:04 UTC"))
	f.Retry = c.ends().Sub(now)
	return f
}

func subject(key db.ID) string {
	if key != 0 {
		return "This API key"
	}
	return "This account"
}

// Gauge is how a limit stands, as far as this node knows: others may have drawn
// since.
type Gauge struct {
	Name   string // requests, sends_per_hour, sends_per_day, recipients_per_day
	Key    db.ID  // the key whose own limit it is; 0: the account's
	Limit  int64
	Left   int64
	Window time.Duration
	Reset  time.Duration // until there is more; 0 while nothing is used
}

func (c *counter) gauge(now time.Time) Gauge {
	return Gauge{Name: c.name.String(), Key: c.key, Limit: c.limit, Left: min(c.left(), c.limit), Window: c.name.window(), Reset: c.ends().Sub(now)}
}
