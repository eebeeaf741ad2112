// SPDX-License-Identifier: Apache-2.0

package folder

import (
	"context"

	"github.com/mailstead/mailstead/internal/db"
)

var (
	insertFolderQuery = db.SQL(`INSERT INTO folder (id, mailbox, name, special_use, uidvalidity, uid_next, modseq, changed_modseq,
			messages, unseen, bytes, recent_uid, log_start_modseq, surcharge_mark)
		VALUES ($1, $2, $3, $4, $5, 1, 1, 1, 0, 0, 0, 1, 0, 2)`)
	insertSubscriptionQuery = db.SQL(`INSERT INTO subscription (mailbox, name) VALUES ($1, $2) ON CONFLICT (mailbox, name) DO NOTHING`)
)

// Provision creates and subscribes the folders of a new mailbox: INBOX and one for each special
// use.
func (s *Folders) Provision(ctx context.Context, tx *db.Tx, mailbox db.ID) error {
	validity := s.Now().Unix()
	for i, f := range []struct{ name, special string }{
		{Inbox, ""}, {"Sent", Sent}, {"Drafts", Drafts}, {"Junk", Junk}, {"Trash", Trash}, {"Archive", Archive},
	} {
		for _, statement := range []db.Statement{
			insertFolderQuery.With(s.DB.NewID(), mailbox, f.name, f.special, validity+int64(i)),
			insertSubscriptionQuery.With(mailbox, f.name),
		} {
			if _, err := tx.Exec(ctx, statement); err != nil {
				return err
			}
		}
	}
	return nil
}
