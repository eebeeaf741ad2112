// SPDX-License-Identifier: Apache-2.0

package throttle

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
	"github.com/mailstead/mailstead/internal/signal"
)

const (
	// debt is how many times its tries a counter counts at most, so that a
	// refusal ends.
	debt = 2

	maxNetworks = 50             // known ones of a credential
	seenAgain   = 24 * time.Hour // how exactly it is known when it last signed in
	maxKnown    = 10_000         // successes that wait to be written
	knownAtOnce = 100            // of them in one commit
	pauseFailed = 5 * time.Second
)

var (
	readLogins = db.SQL(`SELECT credential, network, clear_at, CAST(0 AS BIGINT) FROM login_failure
			WHERE credential IN ('', $1, $2, $3, $4, $5, $6) AND network IN ('', $7, $8)
		UNION ALL SELECT credential, network, CAST(0 AS BIGINT), seen_at FROM login_network
			WHERE credential IN ($1, $2, $3, $4, $5, $6) AND network = $7`)
	countFailure = db.SQL(`INSERT INTO login_failure (credential, network, clear_at) VALUES ($1, $2, CAST($3 AS BIGINT) + CAST($4 AS BIGINT))
		ON CONFLICT (credential, network) DO UPDATE SET clear_at = CASE
			WHEN login_failure.clear_at <= $3 THEN $3 + $4
			WHEN login_failure.clear_at + $4 > CAST($5 AS BIGINT) THEN $5
			ELSE login_failure.clear_at + $4 END
		RETURNING clear_at`)
	takeOne = db.SQL(`INSERT INTO login_failure (credential, network, clear_at) VALUES ($1, $2, CAST($3 AS BIGINT) + CAST($4 AS BIGINT))
		ON CONFLICT (credential, network) DO UPDATE SET clear_at = CASE
			WHEN login_failure.clear_at <= $3 THEN $3 + $4 ELSE login_failure.clear_at + $4 END
		WHERE login_failure.clear_at + $4 <= CAST($5 AS BIGINT)
		RETURNING clear_at`)
	giveOneBack   = db.SQL(`UPDATE login_failure SET clear_at = clear_at - $3 WHERE credential = $1 AND network = $2`)
	clearAt       = db.SQL(`SELECT clear_at FROM login_failure WHERE credential = $1 AND network = $2`)
	forgetCounter = db.SQL(`DELETE FROM login_failure WHERE credential = $1 AND network = $2`)
	pruneFailures = db.SQL(`DELETE FROM login_failure WHERE (credential, network) IN
		(SELECT credential, network FROM login_failure WHERE clear_at < $1 ORDER BY clear_at LIMIT $2)`)

	noteNetwork = db.SQL(`INSERT INTO login_network (credential, network, seen_at) VALUES ($1, $2, $3)
		ON CONFLICT (credential, network) DO UPDATE SET seen_at = excluded.seen_at WHERE login_network.seen_at < excluded.seen_at`)
	trimNetworks = db.SQL(`DELETE FROM login_network WHERE credential = $1
		AND seen_at < (SELECT seen_at FROM login_network WHERE credential = $1 ORDER BY seen_at DESC LIMIT 1 OFFSET $2)`)
	forgetNetworks = db.SQL(`DELETE FROM login_network WHERE credential = $1`)
	pruneNetworks  = db.SQL(`DELETE FROM login_network WHERE (credential, network) IN
		(SELECT credential, network FROM login_network WHERE seen_at < $1 ORDER BY seen_at LIMIT $2)`)
)

// Hashed returns the credential of a name that is not to be stored: of an API key,
// or of an address that does not exist, which is counted like one that does.
// People type passwords into the wrong field.
func (l *LoginLimiter) Hashed(kind, name string) Credential {
	h := hmac.New(sha256.New, l.Key)
	h.Write([]byte(name))
	return Credential(kind + " " + hex.EncodeToString(h.Sum(nil)[:12]))
}

// read sets how all counters of a try stand.
func (l *LoginLimiter) read(ctx context.Context, t *try) error {
	t.network.clearAt, t.site.clearAt = time.Time{}, time.Time{}
	args := make([]any, 0, maxCredentials+2)
	l.mu.Lock()
	for i := range t.all {
		c := &t.all[i]
		c.total.clearAt, c.fromSite.clearAt, c.here.clearAt = time.Time{}, time.Time{}, time.Time{}
		c.seen, c.known = l.known[c.here.counter]
		args = append(args, string(c.id))
	}
	l.mu.Unlock()
	for len(args) < maxCredentials {
		args = append(args, "")
	}
	args = append(args, t.network.network, cmp.Or(t.site.network, t.network.network))
	return l.DB.Each(ctx, readLogins.With(args...), func(r db.Row) error {
		var c counter
		var clear, seen int64
		if err := r.Scan(&c.credential, &c.network, &clear, &seen); err != nil {
			return err
		}
		t.set(c, db.Time(clear), db.Time(seen))
		return nil
	})
}

// set takes one row: of failures if seen is zero, else of a known network.
func (t *try) set(c counter, clear, seen time.Time) {
	if seen.IsZero() {
		for _, g := range t.every() {
			if g.counter == c {
				g.clearAt = clear
			}
		}
		return
	}
	for i := range t.all {
		if one := &t.all[i]; one.here.counter == c && t.l.Now().Sub(seen) < KnownFor {
			one.known = true
			if seen.After(one.seen) {
				one.seen = seen
			}
		}
	}
}

// every are all counters that may apply.
func (t *try) every() []*gauge {
	all := []*gauge{&t.network, &t.site}
	for i := range t.all {
		all = append(all, &t.all[i].total, &t.all[i].fromSite, &t.all[i].here)
	}
	return all
}

// count adds a failure to counters, and returns for how long one of
// them was over its limit before; 0: none was.
func (l *LoginLimiter) count(ctx context.Context, of []*gauge) (over time.Duration, err error) {
	now := l.Now()
	err = l.DB.Tx(ctx, func(tx *db.Tx) error {
		over = 0
		for _, g := range of {
			var at int64
			most := now.Add(time.Duration(debt*g.tries) * g.every)
			err := tx.One(ctx, countFailure.With(string(g.credential), g.network, db.Micros(now), g.every.Microseconds(), db.Micros(most)), &at)
			if err != nil {
				return err
			}
			g.clearAt = db.Time(at)
			if g.failures(now) > g.tries {
				over = max(over, g.refuses(now))
			}
		}
		return nil
	})
	return over, err
}

func compare(a, b counter) int {
	return cmp.Or(cmp.Compare(a.credential, b.credential), cmp.Compare(a.network, b.network))
}

func (l *LoginLimiter) forget(ctx context.Context, c counter) error {
	_, err := l.DB.Exec(ctx, forgetCounter.With(string(c.credential), c.network))
	return err
}

// Allowance is how often something may be done: so many times at once, and once
// more every interval.
type Allowance struct {
	Of    Credential // what is counted, such as "factor:12"
	From  netip.Addr // counted by its network; the zero Addr: from anywhere
	Wide  bool       // the wider one of Networks, an IPv6 /48 or an IPv4 /24
	Tries int
	Every time.Duration
}

// Take uses up one of each allowance before something is done, over all nodes.
// If one has nothing left it takes none and returns fault.Limited, with Retry.
// giveBack returns what was taken.
func (l *LoginLimiter) Take(ctx context.Context, all ...Allowance) (giveBack func(context.Context) error, err error) {
	now := l.Now()
	counters := make([]counter, len(all))
	for i, a := range all {
		if counters[i] = (counter{credential: a.Of}); a.From.IsValid() {
			at := Networks(a.From)
			if counters[i].network = at[0].String(); a.Wide {
				counters[i].network = at[1].String()
			}
		}
	}
	err = l.DB.Tx(ctx, func(tx *db.Tx) error {
		for i, a := range all {
			c, at := counters[i], int64(0)
			full := now.Add(time.Duration(a.Tries) * a.Every)
			err := tx.One(ctx, takeOne.With(string(c.credential), c.network, db.Micros(now), a.Every.Microseconds(), db.Micros(full)), &at)
			if errors.Is(err, db.ErrNoRow) {
				err = l.tooMany(ctx, tx, c, a, now)
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
	return func(ctx context.Context) error {
		return l.DB.Tx(ctx, func(tx *db.Tx) error {
			for i, c := range counters {
				if _, err := tx.Exec(ctx, giveOneBack.With(string(c.credential), c.network, all[i].Every.Microseconds())); err != nil {
					return err
				}
			}
			return nil
		})
	}, err
}

func (l *LoginLimiter) tooMany(ctx context.Context, tx *db.Tx, c counter, a Allowance, now time.Time) error {
	var at int64
	if err := tx.One(ctx, clearAt.With(string(c.credential), c.network), &at); err != nil {
		return err
	}
	return tooMany(db.Time(at).Sub(now) - time.Duration(a.Tries-1)*a.Every)
}

// remember has Run write that a network is known.
func (l *LoginLimiter) remember(c counter, now time.Time) {
	l.mu.Lock()
	if _, there := l.known[c]; there || len(l.known) < maxKnown {
		l.known[c] = now
	}
	l.mu.Unlock()
	select {
	case l.news <- struct{}{}:
	default:
	}
}

// Run writes the networks that credentials signed in from, until ctx ends and
// once more then. report is told what went wrong. A log-in does not wait for it.
func (l *LoginLimiter) Run(ctx context.Context, report func(error)) error {
	for {
		select {
		case <-l.news:
		case <-ctx.Done():
			if err := l.Flush(context.WithoutCancel(ctx)); err != nil {
				report(err)
			}
			return nil
		}
		if err := l.Flush(ctx); err != nil && ctx.Err() == nil {
			report(err)
			_ = signal.Sleep(ctx, pauseFailed)
		}
	}
}

// Flush writes what Run would.
func (l *LoginLimiter) Flush(ctx context.Context) error {
	l.mu.Lock()
	list := maps.Clone(l.known)
	l.mu.Unlock()
	for some := range slices.Chunk(slices.SortedFunc(maps.Keys(list), compare), knownAtOnce) {
		if err := l.DB.Tx(ctx, func(tx *db.Tx) error { return l.noteNetworks(ctx, tx, some, list) }); err != nil {
			return err
		}
		l.mu.Lock()
		for _, c := range some {
			if l.known[c].Equal(list[c]) {
				delete(l.known, c)
			}
		}
		l.mu.Unlock()
	}
	return nil
}

func (l *LoginLimiter) noteNetworks(ctx context.Context, tx *db.Tx, some []counter, seen map[counter]time.Time) error {
	for _, c := range some {
		if !l.knows(c) { // forgotten since
			continue
		}
		if _, err := tx.Exec(ctx, noteNetwork.With(string(c.credential), c.network, db.Micros(seen[c]))); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, trimNetworks.With(string(c.credential), maxNetworks-1)); err != nil {
			return err
		}
	}
	return nil
}

func (l *LoginLimiter) knows(c counter) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, there := l.known[c]
	return there
}

// ForgetNetworks makes no network known for a credential any more, in the
// transaction that gives it another password: where the old one signed in, the new
// one may be guessed at. What another node is about to write is not forgotten.
func (l *LoginLimiter) ForgetNetworks(ctx context.Context, tx *db.Tx, of Credential) error {
	l.mu.Lock()
	maps.DeleteFunc(l.known, func(c counter, _ time.Time) bool { return c.credential == of })
	l.mu.Unlock()
	_, err := tx.Exec(ctx, forgetNetworks.With(string(of)))
	return err
}

// PruneFailures deletes, in one commit, at most limit counters that were clear
// before a time, and returns how many; 0: there are no more.
func (l *LoginLimiter) PruneFailures(ctx context.Context, before time.Time, limit int) (int, error) {
	n, err := l.DB.Exec(ctx, pruneFailures.With(db.Micros(before), limit))
	return int(n), err
}

// PruneNetworks is PruneFailures for networks last seen before a time.
func (l *LoginLimiter) PruneNetworks(ctx context.Context, before time.Time, limit int) (int, error) {
	n, err := l.DB.Exec(ctx, pruneNetworks.With(db.Micros(before), limit))
	return int(n), err
}
