// SPDX-License-Identifier: Apache-2.0

package domain

import (
	"context"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/mailauth"
	"github.com/mailstead/mailstead/internal/secret"
)

var (
	statusesQuery      = db.SQL(`SELECT id, name, status, suspended_at > 0 FROM domain WHERE id > $1 ORDER BY id LIMIT $2`)
	hostedDomainsQuery = db.SQL(`SELECT id, account, name, receives, suspended_at > 0 FROM domain WHERE id > $1 AND owned ORDER BY id LIMIT $2`)
	newestKeysQuery    = db.SQL(`SELECT id, selector, private_key FROM dkim_key WHERE id < $1 ORDER BY id DESC LIMIT $2`)
)

// CountByStatus counts the domains by status, and names the first few that are degraded or failed.
func CountByStatus(ctx context.Context, r db.Reader, few int) (count map[string]int, named []string, err error) {
	count = map[string]int{}
	const atOnce = 500
	for last := db.ID(0); ; {
		n := 0
		err := r.Each(ctx, statusesQuery.With(last, atOnce), func(r db.Row) error {
			var name, status string
			var suspended bool
			if err := r.Scan(&last, &name, &status, &suspended); err != nil {
				return err
			}
			if suspended {
				status = StatusSuspended
			}
			n++
			count[status]++
			if (status == StatusDegraded || status == StatusFailed) && len(named) < few {
				named = append(named, name)
			}
			return nil
		})
		if err != nil || n < atOnce {
			return count, named, err
		}
	}
}

// ListHosted lists the first domains that are owned by an account here, at most that many, and
// whether there are more.
func ListHosted(ctx context.Context, r db.Reader, most int) (all []HostedDomain, more bool, err error) {
	all, err = db.All(ctx, r, hostedDomainsQuery.With(0, most+1), scanHosted)
	if err == nil && len(all) > most {
		all, more = all[:most], true
	}
	return all, more, err
}

// FindHosted finds the domain that an account here owns under a name in A-labels.
func FindHosted(ctx context.Context, r db.Reader, name string) (HostedDomain, bool, error) {
	h, err := db.Find(ctx, r, hostedByNameQuery.With(name), nil, scanHosted)
	return h, h.Domain != 0, err
}

func scanHosted(r db.Row) (h HostedDomain, err error) {
	err = r.Scan(&h.Domain, &h.Account, &h.Name, &h.Receives, &h.Suspended)
	return h, err
}

// CheckSealedKeys tries to open the newest DKIM keys with a secret key, at most that many, or all
// if most is 0. It counts those that it can and can't open, and returns the selector of one that it
// can't.
func CheckSealedKeys(ctx context.Context, r db.Reader, key *secret.Key, most int) (opened, closed int, selector string, err error) {
	const atOnce = 100
	for last, n := db.ID(1<<63-1), atOnce; n == atOnce && (most == 0 || opened+closed < most); {
		n = 0
		err := r.Each(ctx, newestKeysQuery.With(last, atOnce), func(r db.Row) error {
			var name string
			var private []byte
			if err := r.Scan(&last, &name, &private); err != nil {
				return err
			}
			n++
			der, err := key.Open(sealPurpose, private)
			if err == nil {
				_, err = mailauth.ParseKey(der)
			}
			if err != nil {
				closed++
				selector = name
				return nil //nolint:nilerr // counted
			}
			opened++
			return nil
		})
		if err != nil {
			return opened, closed, selector, err
		}
	}
	return opened, closed, selector, nil
}
