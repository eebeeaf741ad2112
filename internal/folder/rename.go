// SPDX-License-Identifier: Apache-2.0

package folder

import (
	"context"
	"strings"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/fault"
)

var renameFolderQuery = db.SQL(`UPDATE folder SET name = $2 WHERE id = $1`)

// Rename renames a folder and all below it, and creates the missing parents of the new name. UIDs
// and UIDVALIDITY stay. Subscriptions move along, since clients show the folders that they have
// subscribed. Renaming INBOX moves its messages to a new folder of that name. INBOX stays, empty,
// with the folders below it (§6.3.5). Errors are those of Create, and fault.NotFound.
func (s *Folders) Rename(ctx context.Context, mailbox db.ID, from, to string) error {
	from, err := cleanName(from)
	if err != nil {
		return noFolderError()
	}
	if to, err = cleanName(to); err != nil {
		return err
	}
	if from == Inbox {
		return s.renameInbox(ctx, mailbox, to)
	}
	if strings.HasPrefix(to, from+string(Separator)) {
		return fault.New(fault.Invalid, "below_itself", "A folder can't be moved below itself.")
	}
	return s.updateTree(ctx, mailbox, func(t *folderTree) error {
		if t.find(from) == nil && !t.hasChildren(from) {
			return noFolderError()
		}
		if t.find(to) != nil || t.hasChildren(to) {
			return folderExistsError()
		}
		for i := range t.folders {
			f := &t.folders[i]
			rest, below := strings.CutPrefix(f.Name, from+string(Separator))
			name := to
			if below {
				name += string(Separator) + rest
			} else if f.Name != from {
				continue
			}
			if _, err := cleanName(name); err != nil { // too long or too deep now
				return err
			}
			f.Name = name
			if _, err := t.tx.Exec(ctx, renameFolderQuery.With(f.ID, name)); err != nil {
				return err
			}
			t.tx.AfterCommit(func() { t.store.wakeFolder(f.ID) })
		}
		if err := t.renameSubscriptions(ctx, from, to); err != nil {
			return err
		}
		return t.createParents(ctx, to)
	})
}

// renameInbox moves the messages instead of the folder, so that sessions that have INBOX open see
// it become empty.
func (s *Folders) renameInbox(ctx context.Context, mailbox db.ID, to string) error {
	from, err := s.folderByName(ctx, mailbox, Inbox)
	if err != nil {
		return err
	}
	if err := s.checkCapacity(Folder{}, int64(from.Messages)); err != nil { // also counts messages that arrived before it was full
		return err
	}
	if _, err := s.Create(ctx, mailbox, to); err != nil {
		return err
	}
	v, err := s.Open(ctx, mailbox, Inbox, true)
	if err != nil {
		return err
	}
	defer v.Close()
	_, err = v.Move(ctx, v.snap.UIDs(), to)
	return err
}
