// SPDX-License-Identifier: Apache-2.0

package folder

import (
	"context"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/mailbox"
)

// candidateColumns are the columns that a candidate is scanned from, before its last. They have only
// as much of an envelope as honest senders need.
const candidateColumns = `id, mailbox, account, outbound, thread_id, check_results, size, message_id, SUBSTR(envelope, 1, 32768)`

// receivedColumns are those of a candidate that any folder may show.
const receivedColumns = candidateColumns + `, COALESCE((SELECT 1 FROM folder_message f WHERE f.message = m.id LIMIT 1), 0)`

var (
	listReceivedQuery = db.PagedSQL(`SELECT ` + receivedColumns + `
		FROM message m WHERE account = $1 AND account <> 0 AND {page}`)
	listReceivedThreadQuery = db.PagedSQL(`SELECT ` + receivedColumns + `
		FROM message m WHERE account = $1 AND thread_id = $4 AND thread_id <> '' AND {page}`)
	receivedByIDQuery = db.SQL(`SELECT ` + receivedColumns + `
		FROM message m WHERE id ` + inList + ` AND account + 0 = $17`)
)

// maxIndexMailboxes is for how many mailboxes of an account the index is asked, for one page of
// received mail.
const maxIndexMailboxes = 100

// ListReceived lists the received mail in the mailboxes of an account, as ListMessages does for one
// mailbox. A deleted mailbox that can still be restored is included. It ignores f.Folder.
func (s *Folders) ListReceived(ctx context.Context, account db.ID, f MessageFilter, page db.Page) (found []StoredMessage, more bool, next db.ID, err error) {
	read := func(at db.Page) ([]messageCandidate, bool, error) {
		if f.Thread != "" {
			return db.ReadPage(ctx, s.DB, listReceivedThreadQuery, at, scanCandidate, account, f.Thread)
		}
		return db.ReadPage(ctx, s.DB, listReceivedQuery, at, scanCandidate, account)
	}
	return s.listStored(ctx, f, page, read, func(db.Page) (*candidateIDs, error) {
		boxes, err := mailbox.IDsOf(ctx, s.DB, account, maxIndexMailboxes+1)
		if err != nil || len(boxes) > maxIndexMailboxes {
			return nil, err
		}
		ids, err := s.candidatesByIndex(ctx, boxes, f)
		if ids != nil {
			ids.statement = func(some []any) db.Statement {
				return receivedByIDQuery.With(append(some, account)...)
			}
		}
		return ids, err
	})
}
