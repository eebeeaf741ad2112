// SPDX-License-Identifier: Apache-2.0

package quota

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/mailstead/mailstead/internal/db"
)

// forgetAfter is how long an idle account is kept in memory.
const forgetAfter = time.Hour

// Run returns idle blocks until ctx ends, and then all blocks of this node. Nothing may be sent
// after that.
func (l *Limiter) Run(ctx context.Context, log *slog.Logger) error {
	tick := time.NewTicker(idleTimeout)
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

// ReturnIdle returns drawn quota from which nothing was spent for some seconds, so that other nodes
// can use it.
func (l *Limiter) ReturnIdle(ctx context.Context) error {
	now := l.Now()
	err := l.returnUnspent(ctx, func(p *pool) bool { return now.Sub(p.usedAt) >= idleTimeout })
	l.mu.Lock()
	defer l.mu.Unlock()
	for id, a := range l.accounts {
		if now.Sub(a.usedAt) >= forgetAfter && a.dropIdleKeys(now) {
			delete(l.accounts, id)
		}
	}
	return err
}

// dropIdleKeys removes idle keys, and reports whether the node has no unspent quota of the account.
func (a *accountState) dropIdleKeys(now time.Time) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	for key, m := range a.keys {
		if now.Sub(m.usedAt) >= forgetAfter && m.empty() {
			delete(a.keys, key)
		}
	}
	return len(a.keys) == 0 && a.meter.empty()
}

func (m *meter) empty() bool {
	for n := range m.pools {
		if m.pools[n].unspent > 0 {
			return false
		}
	}
	return true
}

// ReturnAll returns all unspent quota of this node.
func (l *Limiter) ReturnAll(ctx context.Context) error {
	return l.returnUnspent(ctx, func(*pool) bool { return true })
}

// unspentBlock is unspent quota of a pool.
type unspentBlock struct {
	pool  *pool
	key   db.ID
	name  limitName
	start time.Time
	n     int64
}

var returnBlockQuery = db.SQL(`UPDATE quota_window SET used = used - $5
	WHERE account = $1 AND key = $2 AND name = $3 AND starts_at = $4 AND used >= $5`)

// returnConcurrency is how many accounts' blocks are returned concurrently, to share commits.
const returnConcurrency = 64

func (l *Limiter) returnUnspent(ctx context.Context, which func(*pool) bool) error {
	l.mu.Lock()
	all := make([]*accountState, 0, len(l.accounts))
	for _, a := range l.accounts {
		all = append(all, a)
	}
	l.mu.Unlock()
	var failed [returnConcurrency]error
	for some := range slices.Chunk(all, returnConcurrency) {
		var giving sync.WaitGroup
		for i, a := range some {
			if rests := a.takeUnspent(l.Now(), which); len(rests) > 0 {
				giving.Go(func() { failed[i] = errors.Join(failed[i], l.returnBlocks(ctx, a, rests)) })
			}
		}
		giving.Wait()
	}
	return errors.Join(failed[:]...)
}

// returnBlocks returns the blocks that were taken from an account's pools.
func (l *Limiter) returnBlocks(ctx context.Context, a *accountState, rests []unspentBlock) error {
	err := l.DB.Write(ctx, a.id, &db.Mutation{Apply: func(b *db.Batch) {
		for _, r := range rests {
			b.Queue(returnBlockQuery.With(a.id, r.key, r.name.String(), db.Micros(r.start), r.n))
		}
	}})
	if err != nil && !errors.Is(err, db.ErrCommitUnknown) { // may have been committed: losing quota beats spending it twice
		a.restoreUnspent(rests)
	}
	return err
}

// takeUnspent empties the chosen pools of an account.
func (a *accountState) takeUnspent(now time.Time, which func(*pool) bool) (rests []unspentBlock) {
	a.mu.Lock()
	defer a.mu.Unlock()
	of := func(m *meter, key db.ID) {
		for n := range limitCount {
			p := &m.pools[n]
			if p.advance(n, now); p.unspent > 0 && which(p) {
				rests = append(rests, unspentBlock{p, key, n, p.start, p.unspent})
				p.drawn -= p.unspent
				p.unspent, p.lastBlock = 0, 0
			}
		}
	}
	of(&a.meter, 0)
	for key, m := range a.keys {
		of(m, key)
	}
	return rests
}

// restoreUnspent restores blocks that could not be returned.
func (a *accountState) restoreUnspent(rests []unspentBlock) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, r := range rests {
		if r.pool.start.Equal(r.start) {
			r.pool.unspent += r.n
			r.pool.drawn += r.n
		}
	}
}
