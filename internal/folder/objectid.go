// SPDX-License-Identifier: Apache-2.0

package folder

import (
	"context"
	"slices"

	"github.com/mailstead/mailstead/internal/db"
)

var (
	threadsOf = db.SQL(`SELECT id, thread FROM message
		WHERE id IN ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16)`)
	uidsOfMessage = db.SQL(`SELECT uid FROM folder_message WHERE message = $1 AND folder = $2 ORDER BY uid`)
	uidsOfThread  = db.SQL(`SELECT f.uid FROM message m JOIN folder_message f ON f.message = m.id
		WHERE m.account = $1 AND m.thread = $2 AND m.thread <> '' AND f.folder = $3 ORDER BY f.uid`)
)

// threadsIf fills in the Thread of rows if that is wanted.
func (v *View) threadsIf(ctx context.Context, want Want, rows []Row) error {
	if want&WantThread == 0 {
		return nil
	}
	for some := range slices.Chunk(rows, listSize) {
		var args [listSize]any
		for i := range args {
			args[i] = some[min(i, len(some)-1)].Message
		}
		err := v.store.DB.Each(ctx, threadsOf.With(args[:]...), func(r db.Row) error {
			var id db.ID
			var thread string
			err := r.Scan(&id, &thread)
			for i := range some {
				if some[i].Message == id {
					some[i].Thread = thread
				}
			}
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// OfMessage returns the UIDs, rising, under which the folder shows a message;
// the session need not know them yet.
func (v *View) OfMessage(ctx context.Context, message db.ID) ([]uint32, error) {
	return db.All(ctx, v.store.DB, uidsOfMessage.With(message, v.shared.id), scanUID)
}

// OfThread returns the UIDs, rising, of the messages of one of the account's
// threads.
func (v *View) OfThread(ctx context.Context, account db.ID, thread string) ([]uint32, error) {
	return db.All(ctx, v.store.DB, uidsOfThread.With(account, thread, v.shared.id), scanUID)
}

func scanUID(r db.Row) (uid uint32, err error) {
	err = r.Scan(&uid)
	return uid, err
}
