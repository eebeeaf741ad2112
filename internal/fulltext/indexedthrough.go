// SPDX-License-Identifier: Apache-2.0

package fulltext

import (
	"context"
	"database/sql"
	"maps"
	"slices"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/folder"
)

// A search that uses the index must know which messages the index lacks. The messages of a folder
// become visible in the order of their UIDs, and never change. So it is enough to store the
// indexed-through UID, up to which all are indexed. Each search examines the messages above it
// itself.

const (
	setIndexedThroughQuery = `INSERT INTO search_folder (folder, mailbox, upto) VALUES (?, ?, ?) ON CONFLICT (folder) DO UPDATE SET upto = excluded.upto`
	indexedThroughQuery    = `SELECT folder, upto FROM search_folder WHERE mailbox = ?`
	deleteFolderQuery      = `DELETE FROM search_folder WHERE folder = ?`
	indexedMailboxesQuery  = `SELECT DISTINCT mailbox FROM search_folder WHERE mailbox > ? ORDER BY mailbox LIMIT ?`
	indexedThroughPage     = 2_000 // messages of a folder
	sweepMailboxes         = 100   // mailboxes
	bufferedBetweenQuery   = `SELECT message FROM search_tail WHERE mailbox = ? AND message BETWEEN ? AND ?`
	blocksBetweenQuery     = `SELECT ids FROM search_block WHERE mailbox = ? AND lo <= ? AND hi >= ?`
)

// updateAllIndexedThrough updates the indexed-through UIDs of the mailboxes with newly indexed
// messages, and of those that a search requested.
func (x *Indexer) updateAllIndexedThrough(ctx context.Context) error {
	x.indexedThroughAt = x.Now()
	for {
		select {
		case mailbox := <-x.updateRequests:
			x.updatedMailboxes[mailbox] = true
			continue
		default:
		}
		break
	}
	for mailbox := range x.updatedMailboxes {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := x.updateIndexedThrough(ctx, mailbox); err != nil {
			return err
		}
		delete(x.updatedMailboxes, mailbox)
	}
	return nil
}

// updateIndexedThrough updates the indexed-through UIDs of a mailbox's folders, and deletes those
// of deleted folders.
func (x *Indexer) updateIndexedThrough(ctx context.Context, mailbox db.ID) error {
	folders, err := x.folders.List(ctx, mailbox)
	if err != nil {
		return wrapMailDBError(err)
	}
	covered, err := x.indexedThrough(ctx, mailbox)
	if err != nil {
		return err
	}
	for _, f := range folders {
		upto := covered[f.ID]
		delete(covered, f.ID)
		if upto+1 == f.UIDNext {
			continue
		}
		if upto >= f.UIDNext { // the database was restored from a backup: UIDs are given again
			if err := x.deleteFolders(ctx, f.ID); err != nil {
				return err
			}
			upto = 0
		}
		if err := x.advanceIndexedThrough(ctx, mailbox, f, upto); err != nil {
			return err
		}
	}
	if len(covered) == 0 {
		return nil
	}
	return x.deleteFolders(ctx, slices.Collect(maps.Keys(covered))...)
}

func (x *Index) deleteFolders(ctx context.Context, folders ...db.ID) error {
	return x.write(ctx, func(tx *sql.Tx) error {
		for _, id := range folders {
			if _, err := tx.ExecContext(ctx, deleteFolderQuery, id); err != nil {
				return err
			}
		}
		return nil
	})
}

// indexedThrough returns the indexed-through UIDs of a mailbox's folders.
func (x *Index) indexedThrough(ctx context.Context, mailbox db.ID) (map[db.ID]uint32, error) {
	return scanIndexedThrough(x.reader.QueryContext(ctx, indexedThroughQuery, mailbox))
}

func scanIndexedThrough(rows *sql.Rows, err error) (map[db.ID]uint32, error) {
	if err != nil {
		return nil, err
	}
	defer rows.Close() //nolint:errcheck // what there is is told by Err
	all := map[db.ID]uint32{}
	for rows.Next() {
		var id db.ID
		var upto uint32
		if err := rows.Scan(&id, &upto); err != nil {
			return nil, err
		}
		all[id] = upto
	}
	return all, rows.Err()
}

// advanceIndexedThrough examines the messages that came since the last time, up to the first that
// is not indexed. The folder was read before them.
func (x *Indexer) advanceIndexedThrough(ctx context.Context, mailbox db.ID, f folder.Folder, began uint32) error {
	upto := began
	for upto+1 < f.UIDNext {
		uids, ids, err := x.folders.MessagesAfter(ctx, f.ID, upto, indexedThroughPage)
		if err != nil {
			return wrapMailDBError(err)
		}
		n, err := x.countIndexed(ctx, mailbox, ids)
		if err != nil {
			return err
		}
		if n < len(uids) {
			upto = max(upto, uids[n]-1)
			break
		}
		if len(uids) < indexedThroughPage {
			upto = max(upto, f.UIDNext-1)
			if n > 0 {
				upto = max(upto, uids[n-1])
			}
			break
		}
		upto = uids[n-1]
	}
	if upto == began {
		return nil
	}
	return x.write(ctx, func(tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, setIndexedThroughQuery, f.ID, mailbox, upto)
		return err
	})
}

// countIndexed returns how many of a mailbox's messages precede the first that is not indexed.
func (x *Index) countIndexed(ctx context.Context, mailbox db.ID, ids []db.ID) (int, error) {
	if len(ids) == 0 {
		return 0, nil
	}
	lo, hi := slices.Min(ids), slices.Max(ids)
	tx, err := x.reader.BeginTx(ctx, &sql.TxOptions{ReadOnly: true}) // a block and the write buffer change together
	if err != nil {
		return 0, err
	}
	defer tx.Rollback() //nolint:errcheck // nothing was written
	tail, err := queryInt64s(ctx, tx, bufferedBetweenQuery, mailbox, lo, hi)
	if err != nil {
		return 0, err
	}
	there := make(map[db.ID]bool, len(ids))
	for _, id := range tail {
		there[db.ID(id)] = true
	}
	rows, err := tx.QueryContext(ctx, blocksBetweenQuery, mailbox, hi, lo)
	if err != nil {
		return 0, err
	}
	defer rows.Close() //nolint:errcheck // what there is is told by Err
	for rows.Next() {
		var raw sql.RawBytes
		if err := rows.Scan(&raw); err != nil {
			return 0, err
		}
		indexed, err := decodeIDs[db.ID](raw)
		if err != nil {
			return 0, err
		}
		for _, id := range indexed {
			if id >= lo && id <= hi {
				there[id] = true
			}
		}
	}
	if n := slices.IndexFunc(ids, func(id db.ID) bool { return !there[id] }); n >= 0 {
		return n, rows.Err()
	}
	return len(ids), rows.Err()
}

// sweepIndexedThrough deletes the indexed-through UIDs of deleted folders, also in mailboxes
// without any folder.
func (x *Indexer) sweepIndexedThrough(ctx context.Context) error {
	for last := int64(0); ; {
		mailboxes, err := queryInt64s(ctx, x.reader, indexedMailboxesQuery, last, sweepMailboxes)
		if err != nil || len(mailboxes) == 0 {
			return err
		}
		for _, id := range mailboxes {
			if last = id; ctx.Err() != nil {
				return ctx.Err()
			}
			if err := x.updateIndexedThrough(ctx, db.ID(id)); err != nil {
				return err
			}
		}
	}
}
