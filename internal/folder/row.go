// SPDX-License-Identifier: Apache-2.0

package folder

import (
	"context"
	"errors"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/fault"
)

var (
	folderByName = db.SQL(`SELECT id, mailbox, name, special, uidvalidity, uid_next, modseq, changed, messages, unseen, bytes, recent_uid, log_floor
		FROM folder WHERE mailbox = $1 AND name = $2`)
	folderByID = db.SQL(`SELECT id, mailbox, name, special, uidvalidity, uid_next, modseq, changed, messages, unseen, bytes, recent_uid, log_floor
		FROM folder WHERE id = $1`)
	foldersOf = db.SQL(`SELECT id, mailbox, name, special, uidvalidity, uid_next, modseq, changed, messages, unseen, bytes, recent_uid, log_floor
		FROM folder WHERE mailbox = $1 ORDER BY name`)
	countFrom = db.SQL(`SELECT COUNT(*) FROM folder_message WHERE folder = $1 AND uid >= $2 AND uid < $3`)
)

func scanFolder(r db.Row) (f Folder, err error) {
	err = r.Scan(&f.ID, &f.Mailbox, &f.Name, &f.Special, &f.UIDValidity, &f.UIDNext, &f.ModSeq, &f.changed, &f.Messages, &f.Unseen,
		&f.Bytes, &f.recentFrom, &f.logFloor)
	return f, err
}

func noFolder() error {
	return fault.New(fault.NotFound, "no_such_folder", "There is no folder with this name.")
}

// readFolder reads a folder's row, or returns a fault.NotFound.
func readFolder(ctx context.Context, r db.Reader, s db.Statement) (f Folder, err error) {
	f, err = one(ctx, r, s, scanFolder)
	if errors.Is(err, db.ErrNoRow) {
		return f, noFolder()
	}
	return f, err
}

// one reads a single row, or returns db.ErrNoRow.
func one[T any](ctx context.Context, r db.Reader, s db.Statement, scan func(db.Row) (T, error)) (T, error) {
	all, err := db.All(ctx, r, s, scan)
	if err == nil && len(all) == 0 {
		err = db.ErrNoRow
	}
	if err != nil {
		var none T
		return none, err
	}
	return all[0], nil
}

// byName finds a folder by the name that a client gave.
func (s *Store) byName(ctx context.Context, mailbox db.ID, name string) (Folder, error) {
	name, err := cleanName(name)
	if err != nil {
		return Folder{}, noFolder()
	}
	return readFolder(ctx, s.DB, folderByName.With(mailbox, name))
}

// Folders returns the folders of a mailbox in the order of their names. Names
// that only stand above others, such as "a" when only "a/b" exists, have no
// row: they are what IMAP calls \Noselect.
func (s *Store) Folders(ctx context.Context, mailbox db.ID) ([]Folder, error) {
	return db.All(ctx, s.DB, foldersOf.With(mailbox), scanFolder)
}

// Status returns one folder, or a fault.NotFound.
func (s *Store) Status(ctx context.Context, mailbox db.ID, name string) (Folder, error) {
	return s.byName(ctx, mailbox, name)
}

// Recent returns how many messages of a folder, as Status told it, no session has
// seen yet. It counts them, unless none or all are so.
func (s *Store) Recent(ctx context.Context, f *Folder) (n uint32, err error) {
	switch from := max(f.recentFrom, s.claimed(f.ID)); {
	case from >= f.UIDNext:
		return 0, nil
	case from <= 1:
		return f.Messages, nil
	default:
		return n, s.DB.One(ctx, countFrom.With(f.ID, from, f.UIDNext), &n)
	}
}
