// SPDX-License-Identifier: Apache-2.0

package route

import (
	"context"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/notify"
)

const (
	// refreshInterval is how often a policy is fetched again; half of its lifetime if that is
	// sooner. An attacker who hides its TXT record can't make us keep an old policy (RFC 8461
	// §10.2).
	refreshInterval = 24 * time.Hour
	// refreshRetryDelay is the wait after a failed refresh.
	refreshRetryDelay = time.Hour
	// refreshPollInterval is how often a node looks for policies to refresh.
	refreshPollInterval = time.Minute
	// unusedAfter is how long after its last use a policy is still refreshed.
	unusedAfter = 30 * 24 * time.Hour

	refreshBatchSize   = 100
	refreshConcurrency = 4
)

var (
	getPolicyQuery    = db.SQL(`SELECT id, policy, expires_at, used_at FROM sts_policy WHERE domain = $1`)
	touchPolicyQuery  = db.SQL(`UPDATE sts_policy SET used_at = $2 WHERE domain = $1`)
	upsertPolicyQuery = db.SQL(`INSERT INTO sts_policy (domain, id, policy, fetched_at, expires_at, refresh_at, used_at)
		VALUES ($1, $2, $3, $4, $5, $6, $4) ON CONFLICT (domain) DO UPDATE SET id = excluded.id, policy = excluded.policy,
			fetched_at = excluded.fetched_at, expires_at = excluded.expires_at, refresh_at = excluded.refresh_at`)
	duePoliciesQuery = db.SQL(`SELECT domain, id, expires_at, refresh_at, used_at FROM sts_policy
		WHERE refresh_at <= $1 ORDER BY refresh_at LIMIT $2`)
	claimRefreshQuery        = db.SQL(`UPDATE sts_policy SET refresh_at = $3 WHERE domain = $1 AND refresh_at = $2`)
	deleteExpiredPolicyQuery = db.SQL(`DELETE FROM sts_policy WHERE domain = $1 AND expires_at <= $2`)
)

// loadEntry reads a domain's entry from the table.
func (s *STSResolver) loadEntry(ctx context.Context, domain string, now time.Time) (*policyEntry, error) {
	e := &policyEntry{domain: domain, loadedAt: now, size: entryOverhead + 2*len(domain)}
	var text string
	var used int64
	err := s.opts.DB.One(ctx, getPolicyQuery.With(domain), &e.id, &text, db.TimeScanner(&e.expires), &used)
	if err != nil {
		return e, db.IfNoRow(err, nil)
	}
	if e.policy, err = parseSTSPolicyText(text); err != nil {
		return nil, err
	}
	e.size += len(text)
	if now.Sub(db.Time(used)) > 24*time.Hour {
		err = s.opts.DB.Run(ctx, touchPolicyQuery.With(domain, db.Micros(now)))
	}
	return e, err
}

// storePolicy stores a fetched policy in the table and the cache.
func (s *STSResolver) storePolicy(domain, id string, p *STSPolicy, now time.Time) error {
	expires := now.Add(p.MaxAge)
	refresh := now.Add(max(min(p.MaxAge/2, refreshInterval), fetchRetryDelay))
	text := p.text()
	err := s.opts.DB.Run(s.ctx, upsertPolicyQuery.With(domain, id, text, db.Micros(now), db.Micros(expires), db.Micros(refresh)))
	if err != nil {
		return err
	}
	s.addToCache(&policyEntry{domain: domain, id: id, policy: p, expires: expires, loadedAt: now, size: entryOverhead + 2*len(domain) + len(text)})
	return nil
}

// Run refreshes policies before they expire, and deletes expired ones, until ctx ends. Then it
// aborts the fetches in progress.
func (s *STSResolver) Run(ctx context.Context) error {
	defer s.fetches.Wait()
	defer s.cancel()
	notify.Repeat(ctx, nil, func(ctx context.Context) (time.Duration, error) {
		return refreshPollInterval, s.refresh(ctx)
	}, func(err error) { s.opts.Log.Error("refreshing MTA-STS policies failed", "error", err) })
	return nil
}

// duePolicy is a row that is due for a refresh.
type duePolicy struct {
	domain, id             string
	expires, refresh, used int64
}

// refresh handles all rows that are due.
func (s *STSResolver) refresh(ctx context.Context) error {
	for {
		rows, err := db.All(ctx, s.opts.DB, duePoliciesQuery.With(db.Micros(s.opts.Now()), refreshBatchSize), func(r db.Row) (d duePolicy, err error) {
			return d, r.Scan(&d.domain, &d.id, &d.expires, &d.refresh, &d.used)
		})
		if err != nil {
			return err
		}
		var work errgroup.Group
		work.SetLimit(refreshConcurrency)
		for _, d := range rows {
			work.Go(func() error { return s.refreshOne(ctx, d) })
		}
		if err := work.Wait(); err != nil || len(rows) < refreshBatchSize {
			return err
		}
	}
}

// refreshOne deletes, skips or fetches one policy. A node claims the work by moving the time of the
// policy's next refresh.
func (s *STSResolver) refreshOne(ctx context.Context, d duePolicy) error {
	now := s.opts.Now()
	idle := now.Sub(db.Time(d.used)) > unusedAfter
	next := db.Micros(now.Add(refreshRetryDelay))
	if idle || next > d.expires {
		next = d.expires
	}
	mine := false
	err := s.opts.DB.Tx(ctx, func(tx *db.Tx) error {
		dropped, err := tx.Exec(ctx, deleteExpiredPolicyQuery.With(d.domain, db.Micros(now)))
		if err != nil || dropped > 0 {
			mine = false
			return err
		}
		claimed, err := tx.Exec(ctx, claimRefreshQuery.With(d.domain, d.refresh, next))
		mine = claimed > 0
		return err
	})
	if err != nil || !mine || idle {
		return err
	}
	id, err := s.lookUpID(ctx, d.domain)
	if err != nil {
		return err
	}
	if id == "" {
		id = d.id
	}
	fetching, cancel := context.WithTimeout(ctx, fetchTimeout)
	defer cancel()
	p, err := s.fetch(fetching, d.domain)
	if err != nil {
		if ctx.Err() == nil {
			s.opts.Log.Info("an MTA-STS policy could not be refreshed", "domain", d.domain, "error", err)
		}
		return nil
	}
	return s.storePolicy(d.domain, id, p, now)
}
