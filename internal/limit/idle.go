// SPDX-License-Identifier: Apache-2.0

package limit

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/mailstead/mailstead/internal/db"
)

// forgetAfter is how long an account that does nothing is remembered.
const forgetAfter = time.Hour

// Run gives back what lies idle, until ctx ends, and then all that this node
// has: nothing may be sent any more by then.
func (l *Limits) Run(ctx context.Context, log *slog.Logger) error {
	tick := time.NewTicker(idle)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			if err := l.ReturnIdle(ctx); err != nil && ctx.Err() == nil {
				log.Error("giving back what is left of limits failed", "error", err)
			}
		case <-ctx.Done():
			return l.ReturnAll(context.WithoutCancel(ctx))
		}
	}
}

// ReturnIdle gives back what was drawn and has not been spent from for some
// seconds, so that other nodes can have it.
func (l *Limits) ReturnIdle(ctx context.Context) error {
	now := l.Now()
	err := l.giveUp(ctx, func(p *pool) bool { return now.Sub(p.used) >= idle })
	l.mu.Lock()
	defer l.mu.Unlock()
	for id, a := range l.accounts {
		if now.Sub(a.seen) >= forgetAfter && a.rests(now) {
			delete(l.accounts, id)
		}
	}
	return err
}

// rests forgets the keys that do nothing, and reports whether nothing is had any
// more for the account either.
func (a *account) rests(now time.Time) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	for key, m := range a.keys {
		if now.Sub(m.seen) >= forgetAfter && m.empty() {
			delete(a.keys, key)
		}
	}
	return len(a.keys) == 0 && a.own.empty()
}

func (m *meter) empty() bool {
	for n := range m.pools {
		if m.pools[n].spare > 0 {
			return false
		}
	}
	return true
}

// ReturnAll gives back everything that was drawn and not spent.
func (l *Limits) ReturnAll(ctx context.Context) error {
	return l.giveUp(ctx, func(*pool) bool { return true })
}

// rest is what is left in a pool.
type rest struct {
	pool  *pool
	key   db.ID
	name  name
	start time.Time
	n     int64
}

var returnBlock = db.SQL(`UPDATE limit_window SET drawn = drawn - $5
	WHERE account = $1 AND key = $2 AND name = $3 AND starts_at = $4 AND drawn >= $5`)

// together is how many accounts give back at the same time, to share commits.
const together = 64

func (l *Limits) giveUp(ctx context.Context, which func(*pool) bool) error {
	l.mu.Lock()
	all := make([]*account, 0, len(l.accounts))
	for _, a := range l.accounts {
		all = append(all, a)
	}
	l.mu.Unlock()
	var failed [together]error
	for some := range slices.Chunk(all, together) {
		var giving sync.WaitGroup
		for i, a := range some {
			if rests := a.take(l.Now(), which); len(rests) > 0 {
				giving.Go(func() { failed[i] = errors.Join(failed[i], l.giveAway(ctx, a, rests)) })
			}
		}
		giving.Wait()
	}
	return errors.Join(failed[:]...)
}

// giveAway gives back what was taken from an account's pools.
func (l *Limits) giveAway(ctx context.Context, a *account, rests []rest) error {
	err := l.DB.Write(ctx, a.id, &db.Job{Apply: func(b *db.Batch) {
		for _, r := range rests {
			b.Queue(returnBlock.With(a.id, r.key, r.name.String(), db.Micros(r.start), r.n))
		}
	}})
	if err != nil && !errors.Is(err, db.ErrUnknown) { // then it may have been given back: rather lost than spent twice
		a.put(rests)
	}
	return err
}

// take empties the chosen pools of an account.
func (a *account) take(now time.Time, which func(*pool) bool) (rests []rest) {
	a.mu.Lock()
	defer a.mu.Unlock()
	of := func(m *meter, key db.ID) {
		for n := range names {
			p := &m.pools[n]
			if p.at(n, now); p.spare > 0 && which(p) {
				rests = append(rests, rest{p, key, n, p.start, p.spare})
				p.drawn -= p.spare
				p.spare, p.block = 0, 0
			}
		}
	}
	of(&a.own, 0)
	for key, m := range a.keys {
		of(m, key)
	}
	return rests
}

// put returns what could not be given back.
func (a *account) put(rests []rest) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, r := range rests {
		if r.pool.start.Equal(r.start) {
			r.pool.spare += r.n
			r.pool.drawn += r.n
		}
	}
}
