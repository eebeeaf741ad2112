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
	// With + 0 PostgreSQL looks up the messages one by one, even if it estimates that the folder is
	// small or holds most of them.
	uidsOfMessagesQuery = db.SQL(`SELECT uid FROM folder_message
		WHERE message ` + inList + ` AND folder + 0 = $17`)
	uidsCreatedAfterQuery = db.SQL(`SELECT f.uid FROM message m JOIN folder_message f ON f.message = m.id + 0 AND f.folder + 0 = $3
		WHERE m.mailbox = $1 AND m.id > $2 ORDER BY m.id LIMIT $4`)
	uidsOfThreadQuery = db.SQL(`SELECT f.uid FROM message m JOIN folder_message f ON f.message = m.id
		WHERE m.account = $1 AND m.thread_id = $2 AND m.thread_id <> '' AND f.folder = $3 ORDER BY f.uid`)
)

// fillThreads fills in the Thread of rows if FetchThread is wanted.
func (v *View) fillThreads(ctx context.Context, want FetchFields, rows []MessageRow) error {
	if want&FetchThread == 0 {
		return nil
	}
	for some := range slices.Chunk(rows, db.InListSize) {
		args := db.InListArgs(len(some), func(i int) any { return some[i].Message })
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

// MessageUIDs returns the ascending UIDs under which the folder shows some messages. The session
// need not know them yet.
func (v *View) MessageUIDs(ctx context.Context, messages ...db.ID) (uids []uint32, err error) {
	for some := range slices.Chunk(messages, db.InListSize) {
		args := db.InListArgs(len(some), func(i int) any { return some[i] })
		found, err := db.All(ctx, v.store.DB, uidsOfMessagesQuery.With(append(args, v.shared.id)...), scanUID)
		if err != nil {
			return nil, err
		}
		uids = append(uids, found...)
	}
	slices.Sort(uids)
	return uids, nil
}

// UIDsCreatedAfter returns at most limit UIDs of messages that were created after another message,
// in no particular order.
func (v *View) UIDsCreatedAfter(ctx context.Context, message db.ID, limit int) ([]uint32, error) {
	return db.All(ctx, v.store.DB, uidsCreatedAfterQuery.With(v.row.Mailbox, message, v.shared.id, limit), scanUID)
}

// ThreadUIDs returns the ascending UIDs of the messages of one of the account's threads.
func (v *View) ThreadUIDs(ctx context.Context, account db.ID, thread string) ([]uint32, error) {
	return db.All(ctx, v.store.DB, uidsOfThreadQuery.With(account, thread, v.shared.id), scanUID)
}

func scanUID(r db.Row) (uid uint32, err error) {
	err = r.Scan(&uid)
	return uid, err
}
