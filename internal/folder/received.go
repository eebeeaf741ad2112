// SPDX-License-Identifier: Apache-2.0

package folder

import (
	"context"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/mailbox"
)

var (
	receivedPage = db.Paged(`SELECT id, mailbox, account, outbound, thread, verdicts, size, message_id, SUBSTR(envelope, 1, 32768),
			COALESCE((SELECT 1 FROM folder_message f WHERE f.message = m.id LIMIT 1), 0)
		FROM message m WHERE account = $1 AND account <> 0 AND {page}`)
	receivedThread = db.Paged(`SELECT id, mailbox, account, outbound, thread, verdicts, size, message_id, SUBSTR(envelope, 1, 32768),
			COALESCE((SELECT 1 FROM folder_message f WHERE f.message = m.id LIMIT 1), 0)
		FROM message m WHERE account = $1 AND thread = $4 AND thread <> '' AND {page}`)
	receivedSome = db.SQL(`SELECT id, mailbox, account, outbound, thread, verdicts, size, message_id, SUBSTR(envelope, 1, 32768),
			COALESCE((SELECT 1 FROM folder_message f WHERE f.message = m.id LIMIT 1), 0)
		FROM message m WHERE id IN ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16) AND account + 0 = $17`)
)

// receivedBoxes is of how many mailboxes of an account the index is asked for
// one page of what was received.
const receivedBoxes = 100

// Received lists what arrived in the mailboxes of an account, as Messages does
// for one of them; a mailbox that is deleted, and can still be restored, is
// among them. f.Folder makes no difference.
func (s *Store) Received(ctx context.Context, account db.ID, f KeptFilter, page db.Page) (found []Kept, more bool, next db.ID, err error) {
	read := func(at db.Page) ([]keptCandidate, bool, error) {
		if f.Thread != "" {
			return db.ReadPage(ctx, s.DB, receivedThread, at, scanCandidate, account, f.Thread)
		}
		return db.ReadPage(ctx, s.DB, receivedPage, at, scanCandidate, account)
	}
	return s.find(ctx, f, page, read, func(db.Page) (*keptIDs, error) {
		boxes, err := mailbox.IDsOf(ctx, s.DB, account, receivedBoxes+1)
		if err != nil || len(boxes) > receivedBoxes {
			return nil, err
		}
		ids, err := s.keptByIndex(ctx, boxes, f)
		if ids != nil {
			ids.read = func(some [keptGroup]any) db.Statement { return receivedSome.With(append(some[:], account)...) }
		}
		return ids, err
	})
}
