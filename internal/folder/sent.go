// SPDX-License-Identifier: Apache-2.0

package folder

import (
	"context"

	"github.com/mailstead/mailstead/internal/db"
)

// MaxDelivered is how many messages Delivered names.
const MaxDelivered = 100

var deliveredOf = db.SQL(`SELECT m.outbound FROM folder_message f JOIN message m ON m.id = f.message
	WHERE f.folder = $1 AND f.uid BETWEEN $2 AND $3 AND m.outbound <> 0 ORDER BY f.uid LIMIT $4`)

// Delivered names the messages sent from here (their ids in outbound_message) of
// which the messages with some UIDs of a folder are deliveries: at most the
// first MaxDelivered.
func (s *Store) Delivered(ctx context.Context, folder db.ID, first, last uint32) ([]db.ID, error) {
	return db.All(ctx, s.DB, deliveredOf.With(folder, first, last, MaxDelivered), func(r db.Row) (id db.ID, err error) {
		err = r.Scan(&id)
		return id, err
	})
}
