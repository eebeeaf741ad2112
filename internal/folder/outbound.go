// SPDX-License-Identifier: Apache-2.0

package folder

import (
	"context"

	"github.com/mailstead/mailstead/internal/db"
)

// MaxOutboundIDs is how many ids OutboundIDs returns at most.
const MaxOutboundIDs = 100

var outboundIDsQuery = db.SQL(`SELECT m.outbound FROM folder_message f JOIN message m ON m.id = f.message
	WHERE f.folder = $1 AND f.uid BETWEEN $2 AND $3 AND m.outbound <> 0 ORDER BY f.uid LIMIT $4`)

// OutboundIDs returns the ids in outbound_message of the messages sent from here whose deliveries
// have the given UIDs of a folder: at most the first MaxOutboundIDs.
func (s *Folders) OutboundIDs(ctx context.Context, folder db.ID, uids []Range) (sent []db.ID, err error) {
	for _, r := range uids {
		err := s.DB.Each(ctx, outboundIDsQuery.With(folder, r.Lo, r.Hi, MaxOutboundIDs-len(sent)), func(r db.Row) error {
			var id db.ID
			err := r.Scan(&id)
			sent = append(sent, id)
			return err
		})
		if err != nil || len(sent) == MaxOutboundIDs {
			return sent, err
		}
	}
	return sent, nil
}
