// SPDX-License-Identifier: Apache-2.0

package ratelimit

import (
	"cmp"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/notify"
)

const (
	// maxOvershoot is the maximum of failures that a counter stores, as a multiple of its burst, so
	// that a block ends.
	maxOvershoot = 2

	maxNetworks       = 50             // maximum of known networks of a credential
	seenInterval      = 24 * time.Hour // precision of the time of the last sign-in
	maxUnwritten      = 10_000         // maximum of successes that wait to be written
	networksPerCommit = 100            // successes written in one commit
	flushRetryDelay   = 5 * time.Second
)

var (
	readCountersQuery = db.SQL(`SELECT credential, network, clear_at, CAST(0 AS BIGINT) FROM login_failure
			WHERE credential IN ('', $1, $2, $3, $4, $5, $6) AND network IN ('', $7, $8)
		UNION ALL SELECT credential, network, CAST(0 AS BIGINT), seen_at FROM login_network
			WHERE credential IN ($1, $2, $3, $4, $5, $6) AND network = $7`)
	countFailureQuery = db.SQL(`INSERT INTO login_failure (credential, network, clear_at) VALUES ($1, $2, CAST($3 AS BIGINT) + CAST($4 AS BIGINT))
		ON CONFLICT (credential, network) DO UPDATE SET clear_at = CASE
			WHEN login_failure.clear_at <= $3 THEN $3 + $4
			WHEN login_failure.clear_at + $4 > CAST($5 AS BIGINT) THEN $5
			ELSE login_failure.clear_at + $4 END
		RETURNING clear_at`)
	takeQuery = db.SQL(`INSERT INTO login_failure (credential, network, clear_at) VALUES ($1, $2, CAST($3 AS BIGINT) + CAST($4 AS BIGINT))
		ON CONFLICT (credential, network) DO UPDATE SET clear_at = CASE
			WHEN login_failure.clear_at <= $3 THEN $3 + $4 ELSE login_failure.clear_at + $4 END
		WHERE login_failure.clear_at + $4 <= CAST($5 AS BIGINT)
		RETURNING clear_at`)
	giveBackQuery      = db.SQL(`UPDATE login_failure SET clear_at = clear_at - $3 WHERE credential = $1 AND network = $2`)
	clearAtQuery       = db.SQL(`SELECT clear_at FROM login_failure WHERE credential = $1 AND network = $2`)
	resetCounterQuery  = db.SQL(`DELETE FROM login_failure WHERE credential = $1 AND network = $2`)
	pruneFailuresQuery = db.SQL(`DELETE FROM login_failure WHERE (credential, network) IN
		(SELECT credential, network FROM login_failure WHERE clear_at < $1 ORDER BY clear_at LIMIT $2)`)

	writeNetworkQuery = db.SQL(`INSERT INTO login_network (credential, network, seen_at) VALUES ($1, $2, $3)
		ON CONFLICT (credential, network) DO UPDATE SET seen_at = excluded.seen_at WHERE login_network.seen_at < excluded.seen_at`)
	trimNetworksQuery = db.SQL(`DELETE FROM login_network WHERE credential = $1
		AND seen_at < (SELECT seen_at FROM login_network WHERE credential = $1 ORDER BY seen_at DESC LIMIT 1 OFFSET $2)`)
	forgetNetworksQuery = db.SQL(`DELETE FROM login_network WHERE credential = $1`)
	pruneNetworksQuery  = db.SQL(`DELETE FROM login_network WHERE (credential, network) IN
		(SELECT credential, network FROM login_network WHERE seen_at < $1 ORDER BY seen_at LIMIT $2)`)
)

// HashedCredential returns the credential of a name that must not be stored: an API key, or an
// address that does not exist, which is counted like one that does. People type passwords into the
// wrong field.
func (l *LoginLimiter) HashedCredential(kind, name string) Credential {
	h := hmac.New(sha256.New, l.Key)
	h.Write([]byte(name))
	return Credential(kind + " " + hex.EncodeToString(h.Sum(nil)[:12]))
}

// readCounters reads all counters of an attempt.
func (l *LoginLimiter) readCounters(ctx context.Context, t *attempt) error {
	t.network.clearAt, t.site.clearAt = time.Time{}, time.Time{}
	args := make([]any, 0, maxCredentials+2)
	l.mu.Lock()
	for i := range t.candidates {
		c := &t.candidates[i]
		c.total.clearAt, c.fromSite.clearAt, c.fromNetwork.clearAt = time.Time{}, time.Time{}, time.Time{}
		c.seenAt, c.known = l.unwritten[c.fromNetwork.counterKey]
		args = append(args, string(c.credential))
	}
	l.mu.Unlock()
	for len(args) < maxCredentials {
		args = append(args, "")
	}
	args = append(args, t.network.network, cmp.Or(t.site.network, t.network.network))
	return l.DB.Each(ctx, readCountersQuery.With(args...), func(r db.Row) error {
		var c counterKey
		var clear, seen int64
		if err := r.Scan(&c.credential, &c.network, &clear, &seen); err != nil {
			return err
		}
		t.applyRow(c, db.Time(clear), db.Time(seen))
		return nil
	})
}

// applyRow applies one row: of failures if seen is zero, otherwise of a known network.
func (t *attempt) applyRow(c counterKey, clear, seen time.Time) {
	if seen.IsZero() {
		for _, g := range t.allCounters() {
			if g.counterKey == c {
				g.clearAt = clear
			}
		}
		return
	}
	for i := range t.candidates {
		if one := &t.candidates[i]; one.fromNetwork.counterKey == c && t.l.Now().Sub(seen) < KnownNetworkTTL {
			one.known = true
			if seen.After(one.seenAt) {
				one.seenAt = seen
			}
		}
	}
}

// allCounters returns all counters that may apply.
func (t *attempt) allCounters() []*counterState {
	all := []*counterState{&t.network, &t.site}
	for i := range t.candidates {
		all = append(all, &t.candidates[i].total, &t.candidates[i].fromSite, &t.candidates[i].fromNetwork)
	}
	return all
}

// countFailures adds a failure to each counter. It returns how long one of them was already over
// its limit; 0: none was.
func (l *LoginLimiter) countFailures(ctx context.Context, of []*counterState) (over time.Duration, err error) {
	now := l.Now()
	err = l.DB.Tx(ctx, func(tx *db.Tx) error {
		over = 0
		for _, g := range of {
			most := now.Add(time.Duration(maxOvershoot*g.burst) * g.interval)
			err := tx.One(ctx, countFailureQuery.With(string(g.credential), g.network, db.Micros(now), g.interval.Microseconds(), db.Micros(most)), db.TimeScanner(&g.clearAt))
			if err != nil {
				return err
			}
			if g.failures(now) > g.burst {
				over = max(over, g.blockedFor(now))
			}
		}
		return nil
	})
	return over, err
}

func compareCounters(a, b counterKey) int {
	return cmp.Or(cmp.Compare(a.credential, b.credential), cmp.Compare(a.network, b.network))
}

func (l *LoginLimiter) resetCounter(ctx context.Context, c counterKey) error {
	return l.DB.Run(ctx, resetCounterQuery.With(string(c.credential), c.network))
}

// Limit allows an action Burst times at once, and once more every Interval.
type Limit struct {
	Credential  Credential // counted credential, for example "factor:12"
	Client      netip.Addr // counted by network; the zero Addr: from anywhere
	WideNetwork bool       // count by the wider network of Networks, an IPv6 /48 or an IPv4 /24
	Burst       int
	Interval    time.Duration
}

// Take counts an action against each limit, over all nodes, before the action is done. If a limit
// is reached, it counts nothing and returns a fault.RateLimited with RetryAfter. giveBack reverses
// the count.
func (l *LoginLimiter) Take(ctx context.Context, all ...Limit) (giveBack func(context.Context) error, err error) {
	now := l.Now()
	counters := make([]counterKey, len(all))
	for i, a := range all {
		if counters[i] = (counterKey{credential: a.Credential}); a.Client.IsValid() {
			at := Networks(a.Client)
			if counters[i].network = at[0].String(); a.WideNetwork {
				counters[i].network = at[1].String()
			}
		}
	}
	err = l.DB.Tx(ctx, func(tx *db.Tx) error {
		for i, a := range all {
			c, at := counters[i], int64(0)
			full := now.Add(time.Duration(a.Burst) * a.Interval)
			err := tx.One(ctx, takeQuery.With(string(c.credential), c.network, db.Micros(now), a.Interval.Microseconds(), db.Micros(full)), &at)
			if errors.Is(err, db.ErrNoRow) {
				err = l.limitReached(ctx, tx, c, a, now)
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
	return func(ctx context.Context) error {
		var back []db.Statement
		for i, c := range counters {
			back = append(back, giveBackQuery.With(string(c.credential), c.network, all[i].Interval.Microseconds()))
		}
		return l.DB.Run(ctx, back...)
	}, err
}

func (l *LoginLimiter) limitReached(ctx context.Context, tx *db.Tx, c counterKey, a Limit, now time.Time) error {
	var at int64
	if err := tx.One(ctx, clearAtQuery.With(string(c.credential), c.network), &at); err != nil {
		return err
	}
	return limitedError(db.Time(at).Sub(now) - time.Duration(a.Burst-1)*a.Interval)
}

// queueNetwork makes Run write that a network is known.
func (l *LoginLimiter) queueNetwork(c counterKey, now time.Time) {
	l.mu.Lock()
	if _, there := l.unwritten[c]; there || len(l.unwritten) < maxUnwritten {
		l.unwritten[c] = now
	}
	l.mu.Unlock()
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// Run writes the networks that credentials signed in from, until ctx ends and once more then. It
// calls report with errors. Logins don't wait for it.
func (l *LoginLimiter) Run(ctx context.Context, report func(error)) error {
	for {
		select {
		case <-l.wake:
		case <-ctx.Done():
			if err := l.Flush(context.WithoutCancel(ctx)); err != nil {
				report(err)
			}
			return nil
		}
		if err := l.Flush(ctx); err != nil && ctx.Err() == nil {
			report(err)
			_ = notify.Sleep(ctx, flushRetryDelay)
		}
	}
}

// Flush writes the queued networks at once.
func (l *LoginLimiter) Flush(ctx context.Context) error {
	l.mu.Lock()
	list := maps.Clone(l.unwritten)
	l.mu.Unlock()
	for some := range slices.Chunk(slices.SortedFunc(maps.Keys(list), compareCounters), networksPerCommit) {
		if err := l.DB.Tx(ctx, func(tx *db.Tx) error { return l.writeNetworks(ctx, tx, some, list) }); err != nil {
			return err
		}
		l.mu.Lock()
		for _, c := range some {
			if l.unwritten[c].Equal(list[c]) {
				delete(l.unwritten, c)
			}
		}
		l.mu.Unlock()
	}
	return nil
}

func (l *LoginLimiter) writeNetworks(ctx context.Context, tx *db.Tx, some []counterKey, seen map[counterKey]time.Time) error {
	for _, c := range some {
		if !l.isQueued(c) { // removed by ForgetNetworks
			continue
		}
		if err := tx.Run(ctx, writeNetworkQuery.With(string(c.credential), c.network, db.Micros(seen[c])), trimNetworksQuery.With(string(c.credential), maxNetworks-1)); err != nil {
			return err
		}
	}
	return nil
}

func (l *LoginLimiter) isQueued(c counterKey) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, there := l.unwritten[c]
	return there
}

// ForgetNetworks removes all known networks of a credential, in the transaction that changes its
// password: otherwise the new password could be guessed where the old one signed in. It does not
// remove networks that another node is about to write.
func (l *LoginLimiter) ForgetNetworks(ctx context.Context, tx *db.Tx, of Credential) error {
	l.mu.Lock()
	maps.DeleteFunc(l.unwritten, func(c counterKey, _ time.Time) bool { return c.credential == of })
	l.mu.Unlock()
	return tx.Run(ctx, forgetNetworksQuery.With(string(of)))
}

// PruneFailures deletes, in one commit, at most limit counters whose failures expired before a
// time. It returns the number of deleted counters; 0: there are no more.
func (l *LoginLimiter) PruneFailures(ctx context.Context, before time.Time, limit int) (int, error) {
	n, err := l.DB.Exec(ctx, pruneFailuresQuery.With(db.Micros(before), limit))
	return int(n), err
}

// PruneNetworks is like PruneFailures, for networks last seen before a time.
func (l *LoginLimiter) PruneNetworks(ctx context.Context, before time.Time, limit int) (int, error) {
	n, err := l.DB.Exec(ctx, pruneNetworksQuery.With(db.Micros(before), limit))
	return int(n), err
}
