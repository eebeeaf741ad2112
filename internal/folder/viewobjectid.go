// SPDX-License-Identifier: Apache-2.0

package folder

import (
	"context"
	"slices"

	"github.com/mailstead/mailstead/internal/db"
)

var (
	messageThreadsQuery = db.SQL(`SELECT id, thread_id FROM message
		WHERE id ` + inList)
	uidsOfMessageQuery = db.SQL(`SELECT uid FROM folder_message WHERE message = $1 AND folder = $2 ORDER BY uid`)
	uidsOfThreadQuery  = db.SQL(`SELECT f.uid FROM message m JOIN folder_message f ON f.message = m.id
		WHERE m.account = $1 AND m.thread_id = $2 AND m.thread_id <> '' AND f.folder = $3 ORDER BY f.uid`)
)

// fillThreads fills in the Thread of rows if FetchThread is wanted.
func (v *View) fillThreads(ctx context.Context, want FetchFields, rows []MessageRow) error {
	if want&FetchThread == 0 {
		return nil
	}
	for some := range slices.Chunk(rows, listSize) {
		args := listArgs(len(some), func(i int) any { return some[i].Message })
		err := v.store.DB.Each(ctx, messageThreadsQuery.With(args...), func(r db.Row) error {
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

// MessageUIDs returns the ascending UIDs under which the folder shows a message. The session need
// not know them yet.
func (v *View) MessageUIDs(ctx context.Context, message db.ID) ([]uint32, error) {
	return db.All(ctx, v.store.DB, uidsOfMessageQuery.With(message, v.shared.id), scanUID)
}

// ThreadUIDs returns the ascending UIDs of the messages of one of the account's threads.
func (v *View) ThreadUIDs(ctx context.Context, account db.ID, thread string) ([]uint32, error) {
	return db.All(ctx, v.store.DB, uidsOfThreadQuery.With(account, thread, v.shared.id), scanUID)
}

func scanUID(r db.Row) (uid uint32, err error) {
	err = r.Scan(&uid)
	return uid, err
}
