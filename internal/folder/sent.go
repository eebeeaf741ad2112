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
func (s *Store) Delivered(ctx context.Context, folder db.ID, uids []Range) (sent []db.ID, err error) {
	for _, r := range uids {
		err := s.DB.Each(ctx, deliveredOf.With(folder, r.Lo, r.Hi, MaxDelivered-len(sent)), func(r db.Row) error {
			var id db.ID
			err := r.Scan(&id)
			sent = append(sent, id)
			return err
		})
		if err != nil || len(sent) == MaxDelivered {
			return sent, err
		}
	}
	return sent, nil
}
