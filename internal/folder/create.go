// SPDX-License-Identifier: Apache-2.0

package folder

import (
	"context"
	"errors"
	"slices"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/mailbox"
	"github.com/mailstead/mailstead/internal/notify"
)

var (
	// INBOX is never deleted or renamed, so its row serves as the lock of the tree.
	lockTreeQuery              = db.SQL(`SELECT id FROM folder WHERE mailbox = $1 AND name = 'INBOX' {for_update}`)
	maxUIDValidityQuery        = db.SQL(`SELECT COALESCE(MAX(uidvalidity), 0) FROM folder WHERE mailbox = $1`)
	maxDroppedUIDValidityQuery = db.SQL(`SELECT COALESCE(MAX(uidvalidity), 0) FROM deleted_folder WHERE mailbox = $1`)
)

// folderTree is a mailbox's folders in a transaction with exclusive access to them.
type folderTree struct {
	store   *Folders
	tx      *db.Tx
	mailbox db.ID
	folders []Folder
}

// updateTree runs f in a transaction that excludes other changes to the mailbox's folders, but not
// to their messages.
func (s *Folders) updateTree(ctx context.Context, box db.ID, f func(t *folderTree) error) error {
	return s.DB.Tx(ctx, func(tx *db.Tx) error {
		if _, err := tx.Exec(ctx, mailbox.LockUsage(box)); err != nil {
			return err
		}
		if err := tx.One(ctx, lockTreeQuery.With(box), new(db.ID)); errors.Is(err, db.ErrNoRow) {
			return noFolderError()
		} else if err != nil {
			return err
		}
		folders, err := db.All(ctx, tx, foldersQuery.With(box), scanFolder)
		if err != nil {
			return err
		}
		tx.AfterCommit(func() { s.Hub.Wake(notify.Key{Kind: notify.MailboxSettings, ID: int64(box)}) })
		return f(&folderTree{s, tx, box, folders})
	})
}

func (t *folderTree) find(name string) *Folder {
	if i := slices.IndexFunc(t.folders, func(f Folder) bool { return f.Name == name }); i >= 0 {
		return &t.folders[i]
	}
	return nil
}

// create creates a folder and its missing parents.
func (t *folderTree) create(ctx context.Context, name, special string) (made Folder, err error) {
	if t.find(name) != nil {
		return made, folderExistsError()
	}
	validity, err := t.nextValidity(ctx)
	if err != nil {
		return made, err
	}
	if err := t.insertParents(ctx, name, &validity); err != nil {
		return made, err
	}
	return t.insert(ctx, name, special, &validity)
}

// createParents creates the missing parents of a name.
func (t *folderTree) createParents(ctx context.Context, name string) error {
	validity, err := t.nextValidity(ctx)
	if err != nil {
		return err
	}
	return t.insertParents(ctx, name, &validity)
}

func (t *folderTree) insertParents(ctx context.Context, name string, validity *int64) error {
	for _, above := range parents(name) {
		if t.find(above) == nil {
			if _, err := t.insert(ctx, above, "", validity); err != nil {
				return err
			}
		}
	}
	return nil
}

// nextValidity returns a UIDVALIDITY above all that the mailbox has had: the time in seconds, or
// more if folders are created faster.
func (t *folderTree) nextValidity(ctx context.Context) (int64, error) {
	var last, dropped int64
	if err := t.tx.One(ctx, maxUIDValidityQuery.With(t.mailbox), &last); err != nil {
		return 0, err
	}
	if err := t.tx.One(ctx, maxDroppedUIDValidityQuery.With(t.mailbox), &dropped); err != nil {
		return 0, err
	}
	return max(t.store.Now().Unix(), last+1, dropped+1), nil
}

func (t *folderTree) insert(ctx context.Context, name, special string, validity *int64) (Folder, error) {
	if most := t.store.MaxFolders; len(t.folders) >= most {
		return Folder{}, fault.New(fault.RateLimited, "too_many_folders", "A mailbox can have at most %d folders.", most)
	}
	f := Folder{ID: t.store.DB.NewID(), Mailbox: t.mailbox, Name: name, SpecialUse: special, UIDValidity: uint32(*validity), UIDNext: 1,
		ModSeq: 1, changeModSeq: 1, recentFrom: 1}
	_, err := t.tx.Exec(ctx, insertFolderQuery.With(f.ID, f.Mailbox, f.Name, f.SpecialUse, *validity))
	*validity++
	t.folders = append(t.folders, f)
	return f, err
}

func folderExistsError() error {
	return fault.New(fault.Conflict, "folder_exists", "There is a folder with this name already.")
}

// Create creates a folder and its missing parents (RFC 3501 §6.3.3). It returns a fault.Invalid for
// a bad name, a fault.Conflict if the folder exists, and a fault.RateLimited for too many folders.
func (s *Folders) Create(ctx context.Context, mailbox db.ID, name string) (Folder, error) {
	return s.CreateSpecial(ctx, mailbox, name, "")
}

// Fault codes of CreateSpecial.
const (
	CodeUnknownSpecialUse = "unknown_special_use"
	CodeSpecialUseTaken   = "special_use_taken"
)

// CreateSpecial creates a folder with a special use (RFC 6154 §3). It returns a fault.Conflict if
// another folder of the mailbox has that use, and a fault.Invalid for an unsupported use.
func (s *Folders) CreateSpecial(ctx context.Context, mailbox db.ID, name, special string) (made Folder, err error) {
	if name, err = cleanName(name); err != nil {
		return made, err
	}
	if special != "" && !slices.Contains([]string{Sent, Drafts, Junk, Trash, Archive}, special) {
		return made, fault.New(fault.Invalid, CodeUnknownSpecialUse, "Folders can't have this special use.")
	}
	err = s.updateTree(ctx, mailbox, func(t *folderTree) error {
		if special != "" && slices.ContainsFunc(t.folders, func(f Folder) bool { return f.SpecialUse == special }) {
			return fault.New(fault.Conflict, CodeSpecialUseTaken, "Another folder has this special use already.")
		}
		var err error
		made, err = t.create(ctx, name, special)
		return err
	})
	return made, err
}
