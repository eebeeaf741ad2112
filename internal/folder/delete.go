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
	deleteFolder  = db.SQL(`DELETE FROM folder WHERE id = $1 RETURNING uidvalidity, messages, bytes, surcharge`)
	insertDropped = db.SQL(`INSERT INTO dropped (folder, mailbox, uidvalidity) VALUES ($1, $2, $3)`)
)

// CodeHasChildren is that of a name which can't be deleted as there are folders below.
const CodeHasChildren = "has_children"

// Delete deletes a folder and its messages, but not the folders below it: while
// there are any, its name stays as one that can't be selected (RFC 3501
// §6.3.4). Such a name, and INBOX, can't be deleted: fault.Invalid. No such
// folder is a fault.NotFound. Deleting leaves the subscription. It returns which
// folder that was.
func (s *Store) Delete(ctx context.Context, box db.ID, name string) (id db.ID, err error) {
	if name, err = cleanName(name); err != nil {
		return 0, noFolder()
	}
	if name == Inbox {
		return 0, fault.New(fault.Invalid, "inbox_stays", "INBOX can't be deleted.")
	}
	err = s.changeTree(ctx, box, func(t *tree) error {
		f := t.find(name)
		if f == nil && t.hasBelow(name) {
			return fault.New(fault.Invalid, CodeHasChildren, "There are folders below this one.")
		}
		if f == nil {
			return noFolder()
		}
		id = f.ID
		return t.drop(ctx, id)
	})
	return id, err
}

func (t *tree) hasBelow(name string) bool {
	return slices.ContainsFunc(t.folders, func(f Folder) bool { return strings.HasPrefix(f.Name, name+string(Separator)) })
}

// drop makes a folder disappear at once; its messages are taken out later,
// piece by piece (see collect.go).
func (t *tree) drop(ctx context.Context, id db.ID) error {
	var validity int64
	var of mailbox.Use
	if err := t.tx.One(ctx, deleteFolder.With(id), &validity, &of.Messages, &of.Bytes, &of.Surcharge); err != nil {
		return err
	}
	for _, statement := range []db.Statement{
		insertDropped.With(id, t.mailbox, validity),
		mailbox.Deposit(t.mailbox, of.Less()),
	} {
		if _, err := t.tx.Exec(ctx, statement); err != nil {
			return err
		}
	}
	t.tx.AfterCommit(func() { t.store.wakeFolder(id) })
	return nil
}
