// SPDX-License-Identifier: Apache-2.0

package folder

import (
	"context"
	"errors"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/fault"
)

// folderColumns are the columns that a folder is scanned from.
const folderColumns = `id, mailbox, name, special_use, uidvalidity, uid_next, modseq, changed_modseq, messages, unseen, bytes, recent_uid, log_start_modseq`

var (
	folderByNameQuery = db.SQL(`SELECT ` + folderColumns + `
		FROM folder WHERE mailbox = $1 AND name = $2`)
	folderByIDQuery = db.SQL(`SELECT ` + folderColumns + `
		FROM folder WHERE id = $1`)
	foldersQuery = db.SQL(`SELECT ` + folderColumns + `
		FROM folder WHERE mailbox = $1 ORDER BY name`)
	countUIDsQuery = db.SQL(`SELECT COUNT(*) FROM folder_message WHERE folder = $1 AND uid >= $2 AND uid < $3`)
)

func scanFolder(r db.Row) (f Folder, err error) {
	err = r.Scan(&f.ID, &f.Mailbox, &f.Name, &f.SpecialUse, &f.UIDValidity, &f.UIDNext, &f.ModSeq, &f.changeModSeq, &f.Messages, &f.Unseen,
		&f.Bytes, &f.recentFrom, &f.logLayer)
	return f, err
}

func noFolderError() error {
	return fault.New(fault.NotFound, "no_such_folder", "There is no folder with this name.")
}

// readFolder reads a folder's row, or returns a fault.NotFound.
func readFolder(ctx context.Context, r db.Reader, s db.Statement) (f Folder, err error) {
	f, err = queryOne(ctx, r, s, scanFolder)
	if errors.Is(err, db.ErrNoRow) {
		return f, noFolderError()
	}
	return f, err
}

// queryOne reads a single row, or returns db.ErrNoRow.
func queryOne[T any](ctx context.Context, r db.Reader, s db.Statement, scan func(db.Row) (T, error)) (T, error) {
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

// folderByName finds a folder by the name that a client gave.
func (s *Folders) folderByName(ctx context.Context, mailbox db.ID, name string) (Folder, error) {
	name, err := cleanName(name)
	if err != nil {
		return Folder{}, noFolderError()
	}
	return readFolder(ctx, s.DB, folderByNameQuery.With(mailbox, name))
}

// List returns the folders of a mailbox in the order of their names. Names that are only
// parents, such as "a" when only "a/b" exists, have no row: IMAP calls them \Noselect.
func (s *Folders) List(ctx context.Context, mailbox db.ID) ([]Folder, error) {
	return db.All(ctx, s.DB, foldersQuery.With(mailbox), scanFolder)
}

// Status returns one folder, or a fault.NotFound.
func (s *Folders) Status(ctx context.Context, mailbox db.ID, name string) (Folder, error) {
	return s.folderByName(ctx, mailbox, name)
}

// CountRecent returns how many messages of a folder, as returned by Status, no session has seen
// yet. It reads no rows if none or all are recent.
func (s *Folders) CountRecent(ctx context.Context, f *Folder) (n uint32, err error) {
	switch from := max(f.recentFrom, s.recentFrom(f.ID)); {
	case from >= f.UIDNext:
		return 0, nil
	case from <= 1:
		return f.Messages, nil
	default:
		return n, s.DB.One(ctx, countUIDsQuery.With(f.ID, from, f.UIDNext), &n)
	}
}
