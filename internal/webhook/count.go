// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"context"

	"github.com/mailstead/mailstead/internal/db"
)

var webhookStatusesQuery = db.SQL(`SELECT id, status, reason FROM webhook WHERE id > $1 ORDER BY id LIMIT $2`)

// CountDisabled counts all webhooks and those that were disabled because they failed. It returns
// the ids of up to few of the latter.
func CountDisabled(ctx context.Context, r db.Reader, few int) (all, failed int, some []db.ID, err error) {
	const atOnce = 500
	for last := db.ID(0); ; {
		n := 0
		err := r.Each(ctx, webhookStatusesQuery.With(last, atOnce), func(r db.Row) error {
			var status, reason string
			if err := r.Scan(&last, &status, &reason); err != nil {
				return err
			}
			n++
			if status == StatusEnabled || status == StatusDisabled {
				all++
			}
			if status == StatusDisabled && reason != ReasonManual {
				failed++
				if len(some) < few {
					some = append(some, last)
				}
			}
			return nil
		})
		if err != nil || n < atOnce {
			return all, failed, some, err
		}
	}
}
