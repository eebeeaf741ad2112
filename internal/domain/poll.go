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

// The polling: fast at first, since somebody is waiting, then ever slower;
// once a day when all is well, or nothing is expected to change.
const (
	minInterval    = time.Minute
	maxInterval    = time.Hour
	stableInterval = 24 * time.Hour

	// checkReservation is for how long a domain that is being looked at is left alone
	// by others; after that its node has died.
	checkReservation    = 5 * time.Minute
	maxConcurrentChecks = 4  // domains; also how many of an account are in a batch
	pollBatchSize       = 64 // domains
	maxPollWait         = time.Minute
)

var (
	// Accounts take turns: thousands of names whose servers never answer delay
	// nobody else's. With + 0 SQLite reads what is due, not all in the order of accounts.
	dueDomainsQuery = db.SQL(`SELECT id, next_check_at FROM (
			SELECT id, next_check_at, ROW_NUMBER() OVER (PARTITION BY account + 0 ORDER BY next_check_at) AS turn
			FROM domain WHERE next_check_at <= $1) AS due
		WHERE turn <= $3 ORDER BY turn, next_check_at LIMIT $2`)
	reserveCheckQuery = db.SQL(`UPDATE domain SET next_check_at = $3 WHERE id = $1 AND next_check_at = $2`)
	nextDueQuery      = db.SQL(`SELECT next_check_at FROM domain WHERE next_check_at > $1 ORDER BY next_check_at LIMIT 1`)
)

// CheckDNS looks for all records of a domain now.
func (d *Domains) CheckDNS(ctx context.Context, account, id db.ID) (Domain, error) {
	return d.checkNow(ctx, account, id, "")
}

// VerifyOwnership looks for the OWNERSHIP record of a domain now.
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

// checkInterval is the time until the next look.
func (c *claim) checkInterval(keys []key, records []Record) time.Duration {
	unsettled := slices.ContainsFunc(keys, func(k key) bool { return k.state == KeyPending })
	for _, r := range records {
		// Pending is also one that has changed since the look began.
		unsettled = unsettled || r.Status == RecordTemporaryFailure || r.Status == RecordPending
	}
	switch {
	case c.status == StatusFailed || c.suspended(),
		c.status == StatusVerified && c.mismatchSince.IsZero() && c.contestedSince.IsZero() && !unsettled:
		return stableInterval
	}
	return min(minInterval<<min(c.checks, 10), maxInterval)
}

// jitter spreads d by a tenth to either side, so that domains added together
// are not looked at together for ever.
func jitter(d time.Duration) time.Duration { return d*9/10 + rand.N(d/5) }

// Run looks at domains when they are due, keeps a key ready for the next one
// that is added, and forgets what other nodes changed, until ctx ends.
func (d *Domains) Run(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return d.keepSpareKey(ctx) })
	group.Go(func() error { return d.followChanges(ctx) })
	group.Go(func() error { return d.runPolling(ctx) })
	return group.Wait()
}

// followChanges forgets what was remembered whenever a domain changed anywhere.
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

// poll looks at all domains that are due, and returns how long there will be
// nothing to do.
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

// dueDomain is a domain that is to be looked at.
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
			// One that fails is left alone for a while, by its new due time;
			// it must not keep the others from their turn.
			if err := d.checkDue(ctx, x.id); err != nil && ctx.Err() == nil {
				d.Log.Error("checking a domain", "domain", x.id, "error", err)
			}
			return nil
		})
	}
	return len(all), group.Wait()
}

// reserveCheck reserves a due domain, unless another node was quicker.
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
		return nil // it was deleted meanwhile
	}
	return err
}
