// SPDX-License-Identifier: Apache-2.0

package folder

import (
	"context"
	"slices"
	"strings"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/mailbox"
)

var (
	deleteFolderQuery  = db.SQL(`DELETE FROM folder WHERE id = $1 RETURNING uidvalidity, messages, bytes, surcharge`)
	insertDroppedQuery = db.SQL(`INSERT INTO deleted_folder (folder, mailbox, uidvalidity) VALUES ($1, $2, $3)`)
)

// CodeHasChildren is the fault code for a name that can't be deleted because it has folders below
// it.
const CodeHasChildren = "has_children"

// Delete deletes a folder and its messages, but not the folders below it, and returns the folder's
// id. While there are folders below it, its name stays as one that can't be selected (RFC 3501
// §6.3.4). It returns a fault.Invalid for such a name and for INBOX, and a fault.NotFound if the
// folder does not exist. The subscription stays.
func (s *Folders) Delete(ctx context.Context, box db.ID, name string) (id db.ID, err error) {
	if name, err = cleanName(name); err != nil {
		return 0, noFolderError()
	}
	if name == Inbox {
		return 0, fault.New(fault.Invalid, "inbox_stays", "INBOX can't be deleted.")
	}
	err = s.updateTree(ctx, box, func(t *folderTree) error {
		f := t.find(name)
		if f == nil && t.hasChildren(name) {
			return fault.New(fault.Invalid, CodeHasChildren, "There are folders below this one.")
		}
		if f == nil {
			return noFolderError()
		}
		id = f.ID
		return t.drop(ctx, id)
	})
	return id, err
}

func (t *folderTree) hasChildren(name string) bool {
	return slices.ContainsFunc(t.folders, func(f Folder) bool { return strings.HasPrefix(f.Name, name+string(Separator)) })
}

// drop removes a folder at once. Its messages are removed later, in batches (see garbage.go).
func (t *folderTree) drop(ctx context.Context, id db.ID) error {
	var validity int64
	var of mailbox.Usage
	if err := t.tx.One(ctx, deleteFolderQuery.With(id), &validity, &of.Messages, &of.Bytes, &of.Overhead); err != nil {
		return err
	}
	for _, statement := range []db.Statement{
		insertDroppedQuery.With(id, t.mailbox, validity),
		mailbox.AddUsage(t.mailbox, of.Negate()),
	} {
		if _, err := t.tx.Exec(ctx, statement); err != nil {
			return err
		}
	}
	t.tx.AfterCommit(func() { t.store.wakeFolder(id) })
	return nil
}
