// SPDX-License-Identifier: Apache-2.0

package domain

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/fault"
)

// Polling starts fast, because somebody is waiting, and slows down. It is once a day if all is
// well, or if no change is expected.
const (
	minInterval    = time.Minute
	maxInterval    = time.Hour
	stableInterval = 24 * time.Hour

	// checkReservation is how long other nodes leave a domain alone that is being checked; after
	// that, its node is assumed dead.
	checkReservation    = 5 * time.Minute
	maxConcurrentChecks = 4  // domains; also the maximum per account in a batch
	pollBatchSize       = 64 // domains
	maxPollWait         = time.Minute
)

var (
	// The query interleaves accounts, so that thousands of names with unresponsive servers don't
	// delay other accounts. The + 0 makes SQLite read the due rows instead of all rows in account
	// order.
	dueDomainsQuery = db.SQL(`SELECT id, next_check_at FROM (
			SELECT id, next_check_at, ROW_NUMBER() OVER (PARTITION BY account + 0 ORDER BY next_check_at) AS turn
			FROM domain WHERE next_check_at <= $1) AS due
		WHERE turn <= $3 ORDER BY turn, next_check_at LIMIT $2`)
	reserveCheckQuery = db.SQL(`UPDATE domain SET next_check_at = $3 WHERE id = $1 AND next_check_at = $2`)
	nextDueQuery      = db.SQL(`SELECT next_check_at FROM domain WHERE next_check_at > $1 ORDER BY next_check_at LIMIT 1`)
)

// CheckDNS checks all records of a domain now.
func (d *Domains) CheckDNS(ctx context.Context, account, id db.ID) (Domain, error) {
	return d.checkNow(ctx, account, id, "")
}

// VerifyOwnership checks the OWNERSHIP record of a domain now.
func (d *Domains) VerifyOwnership(ctx context.Context, account, id db.ID) (Domain, error) {
	return d.checkNow(ctx, account, id, KindOwnership)
}

func (d *Domains) checkNow(ctx context.Context, account, id db.ID, kind string) (Domain, error) {
	c, err := findClaim(ctx, d.DB, accountDomainQuery.With(id, account))
	if err != nil {
		return Domain{}, err
	}
	return d.check(ctx, c, kind, true)
}

func (d *Domains) check(ctx context.Context, c *claim, kind string, manual bool) (Domain, error) {
	keys, err := db.All(ctx, d.DB, domainKeysQuery.With(c.id), scanKey)
	if err != nil {
		return Domain{}, err
	}
	l, err := d.checkRecords(ctx, c, keys, kind)
	if err != nil {
		return Domain{}, err
	}
	return d.applySnapshot(ctx, c.id, c.name, l, manual)
}

// checkInterval returns the time until the next check.
func (c *claim) checkInterval(keys []key, records []Record) time.Duration {
	unsettled := slices.ContainsFunc(keys, func(k key) bool { return k.state == KeyPending })
	for _, r := range records {
		// A record that has changed since the check began is also pending.
		unsettled = unsettled || r.Status == RecordTemporaryFailure || r.Status == RecordPending
	}
	switch {
	case c.status == StatusFailed || c.suspended(),
		c.status == StatusVerified && c.mismatchSince.IsZero() && c.contestedSince.IsZero() && !unsettled:
		return stableInterval
	}
	return min(minInterval<<min(c.checks, 10), maxInterval)
}

// jitter varies d by up to a tenth in both directions, so that domains added together aren't always
// checked together.
func jitter(d time.Duration) time.Duration { return d*9/10 + rand.N(d/5) }

// Run checks domains when they are due, maintains a spare key for the next new domain, and drops
// cached data that other nodes changed, until ctx ends.
func (d *Domains) Run(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return d.keepSpareKey(ctx) })
	group.Go(func() error { return d.followChanges(ctx) })
	group.Go(func() error { return d.runPolling(ctx) })
	return group.Wait()
}

// followChanges drops cached data whenever a domain changes on any node.
func (d *Domains) followChanges(ctx context.Context) error {
	sub := d.Hub.Subscribe(anyDomainKey)
	defer sub.Close()
	for {
		select {
		case <-sub.C:
			d.Invalidate(0)
		case <-ctx.Done():
			return nil
		}
	}
}

func (d *Domains) runPolling(ctx context.Context) error {
	sub := d.Hub.Subscribe(anyDomainKey)
	defer sub.Close()
	for {
		wait, err := d.poll(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			d.Log.Error("looking for domains that are due", "error", err)
			wait = maxPollWait
		}
		select {
		case <-d.after(wait):
		case <-sub.C:
		case <-ctx.Done():
			return nil
		}
	}
}

// poll checks all domains that are due, and returns the time until there is more to do.
func (d *Domains) poll(ctx context.Context) (time.Duration, error) {
	for {
		n, err := d.checkDueBatch(ctx)
		if err != nil {
			return 0, err
		}
		if n == 0 {
			break
		}
	}
	now, next := d.Now(), int64(0)
	err := d.DB.Each(ctx, nextDueQuery.With(db.Micros(now)), func(r db.Row) error { return r.Scan(&next) })
	if err != nil || next == 0 {
		return maxPollWait, err
	}
	return max(0, min(maxPollWait, db.Time(next).Sub(now))), nil
}

// dueDomain is a domain that is due for a check.
type dueDomain struct {
	id    db.ID
	dueAt int64
}

func (d *Domains) checkDueBatch(ctx context.Context) (int, error) {
	all, err := db.All(ctx, d.DB, dueDomainsQuery.With(db.Micros(d.Now()), pollBatchSize, maxConcurrentChecks), func(r db.Row) (dueDomain, error) {
		var x dueDomain
		err := r.Scan(&x.id, &x.dueAt)
		return x, err
	})
	if err != nil {
		return 0, err
	}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(maxConcurrentChecks)
	for _, x := range all {
		group.Go(func() error {
			mine, err := d.reserveCheck(ctx, x)
			if err != nil || !mine {
				return err
			}
			// A failed domain is left alone until its new due time; it must not delay the others.
			if err := d.checkDue(ctx, x.id); err != nil && ctx.Err() == nil {
				d.Log.Error("checking a domain", "domain", x.id, "error", err)
			}
			return nil
		})
	}
	return len(all), group.Wait()
}

// reserveCheck reserves a due domain. It reports false if another node has reserved it.
func (d *Domains) reserveCheck(ctx context.Context, x dueDomain) (mine bool, err error) {
	n, err := d.DB.Exec(ctx, reserveCheckQuery.With(x.id, x.dueAt, db.Micros(d.Now().Add(checkReservation))))
	return n == 1, err
}

func (d *Domains) checkDue(ctx context.Context, id db.ID) error {
	c, err := findClaim(ctx, d.DB, domainByIDQuery.With(id))
	if err == nil {
		rotated := d.rotateIfDue(ctx, c)
		_, err = d.check(ctx, c, "", false)
		err = errors.Join(err, rotated)
	}
	if fault.Is(err, fault.NotFound) {
		return nil // deleted meanwhile
	}
	return err
}
