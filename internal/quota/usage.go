// SPDX-License-Identifier: Apache-2.0

package quota

import (
	"context"
	"time"

	"github.com/mailstead/mailstead/internal/db"
)

// Usage is the usage of a limit in the current window. Quota that other nodes have drawn counts as
// used.
type Usage struct {
	Name     string // sends_per_hour, sends_per_day, recipients_per_day
	Key      db.ID  // the key whose own limit it is; 0: the account's
	Limit    int64  // 0 for none
	Used     int64
	ResetsAt time.Time
}

// Usage returns the usage of all hourly and daily limits: the account's, then the key's own.
func (l *Limiter) Usage(ctx context.Context, w Consumer) ([]Usage, error) {
	a, err := l.load(ctx, w.Account)
	if err != nil {
		return nil, err
	}
	now := l.Now()
	if err := l.readWindows(ctx, a, w, now); err != nil {
		return nil, err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	all := a.counters(w, now, amounts{})
	usage := make([]Usage, len(all))
	for i := range all {
		c := &all[i]
		usage[i] = Usage{Name: c.name.String(), Key: c.key, Limit: c.limit, Used: max(0, c.drawn-c.unspent), ResetsAt: c.endsAt()}
	}
	return usage, nil
}

// Statuses returns the status of the limits that apply to a send, as far as this node knows: the
// account's, then the key's own.
func (l *Limiter) Statuses(ctx context.Context, w Consumer) ([]Status, error) {
	a, err := l.load(ctx, w.Account)
	if err != nil {
		return nil, err
	}
	now := l.Now()
	gauges, known := a.statuses(w, now)
	if !known {
		if err := l.readWindows(ctx, a, w, now); err != nil {
			return nil, err
		}
		gauges, _ = a.statuses(w, now)
	}
	return gauges, nil
}

func (a *accountState) statuses(w Consumer, now time.Time) (gauges []Status, known bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	all := a.counters(w, now, amounts{})
	gauges, known = make([]Status, 0, len(all)), true
	for i := range all {
		c := &all[i]
		if c.limit == 0 {
			continue
		}
		known = known && !c.readAt.IsZero()
		gauges = append(gauges, c.status(now))
	}
	return gauges, known
}

var windowsQuery = db.SQL(`SELECT key, name, starts_at, used FROM quota_window
	WHERE account = $1 AND key IN (0, $2) AND starts_at >= $3`)

// readWindows reads the usage of the limits that apply to a consumer.
func (l *Limiter) readWindows(ctx context.Context, a *accountState, w Consumer, now time.Time) error {
	type place struct {
		key   db.ID
		name  string
		start int64
	}
	drawn := map[place]int64{}
	err := l.DB.Each(ctx, windowsQuery.With(a.id, w.Key, db.Micros(now.UTC().Truncate(sendsPerDay.window()))), func(r db.Row) error {
		var p place
		var n int64
		err := r.Scan(&p.key, &p.name, &p.start, &n)
		drawn[p] = n
		return err
	})
	if err != nil {
		return err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	all := a.counters(w, now, amounts{})
	for i := range all {
		c := &all[i]
		c.drawn, c.pool.readAt = max(c.unspent, drawn[place{c.key, c.name.String(), db.Micros(c.start)}]), now
	}
	return nil
}
