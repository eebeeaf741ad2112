// SPDX-License-Identifier: Apache-2.0

package folder

import (
	"context"

	"github.com/mailstead/mailstead/internal/db"
)

var (
	receivedPage = db.Paged(`SELECT id, mailbox, account, outbound, thread, verdicts, size, message_id, SUBSTR(envelope, 1, 32768),
			COALESCE((SELECT 1 FROM folder_message f WHERE f.message = m.id LIMIT 1), 0)
		FROM message m WHERE account = $1 AND account <> 0 AND {page}`)
	receivedThread = db.Paged(`SELECT id, mailbox, account, outbound, thread, verdicts, size, message_id, SUBSTR(envelope, 1, 32768),
			COALESCE((SELECT 1 FROM folder_message f WHERE f.message = m.id LIMIT 1), 0)
		FROM message m WHERE account = $1 AND thread = $4 AND thread <> '' AND {page}`)
)

// Received lists what arrived in the mailboxes of an account, as Messages does
// for one of them; a mailbox that is deleted, and can still be restored, is
// among them. f.Folder makes no difference.
func (s *Store) Received(ctx context.Context, account db.ID, f KeptFilter, page db.Page) (found []Kept, more bool, next db.ID, err error) {
	return s.list(ctx, f, page, func(at db.Page) ([]keptCandidate, bool, error) {
		if f.Thread != "" {
			return db.ReadPage(ctx, s.DB, receivedThread, at, scanCandidate, account, f.Thread)
		}
		return db.ReadPage(ctx, s.DB, receivedPage, at, scanCandidate, account)
	})
}
