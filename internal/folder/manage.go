// SPDX-License-Identifier: Apache-2.0

package folder

import (
	"context"

	"github.com/mailstead/mailstead/internal/blob"
	"github.com/mailstead/mailstead/internal/db"
)

// Provision makes the folders of a new mailbox, subscribed: INBOX and one for
// each special use.
func (s *Store) Provision(ctx context.Context, tx *db.Tx, mailbox db.ID) error { return errNotBuilt }

// Empty deletes all folders, subscriptions and mail of a mailbox, for good. It
// may be called again after it failed.
func (s *Store) Empty(ctx context.Context, mailbox db.ID) error { return errNotBuilt }

// Folders returns the folders of a mailbox in the order of their names. Names
// that only stand above others, such as "a" when only "a/b" exists, have no
// row: they are what IMAP calls \Noselect.
func (s *Store) Folders(ctx context.Context, mailbox db.ID) ([]Folder, error) {
	return nil, errNotBuilt
}

// Status returns one folder, Recent included, or a fault.NotFound.
func (s *Store) Status(ctx context.Context, mailbox db.ID, name string) (Folder, error) {
	return Folder{}, errNotBuilt
}

// Create makes a folder, and those above it that do not exist. A bad name is a
// fault.Invalid, one that exists a fault.Conflict, too many folders a
// fault.Limited.
func (s *Store) Create(ctx context.Context, mailbox db.ID, name string) (Folder, error) {
	return s.CreateSpecial(ctx, mailbox, name, "")
}

// CreateSpecial makes a folder with a special use (RFC 6154 §3), which no other
// folder of the mailbox may have, else it is a fault.Conflict.
func (s *Store) CreateSpecial(ctx context.Context, mailbox db.ID, name, special string) (Folder, error) {
	return Folder{}, errNotBuilt
}

// Delete deletes a folder and its messages, but not the folders below it: while
// there are any, its name stays as \Noselect (RFC 3501 §6.3.4). Such a name,
// and INBOX, can't be deleted: fault.Denied. No such folder is fault.NotFound.
func (s *Store) Delete(ctx context.Context, mailbox db.ID, name string) error { return errNotBuilt }

// Rename renames a folder and all below it. Renaming INBOX moves its messages
// to a new folder of that name and leaves INBOX empty (RFC 3501 §6.3.5).
func (s *Store) Rename(ctx context.Context, mailbox db.ID, from, to string) error {
	return errNotBuilt
}

// Subscribe adds a name, which need not exist, to the subscriptions.
func (s *Store) Subscribe(ctx context.Context, mailbox db.ID, name string) error { return errNotBuilt }

// Unsubscribe takes a name away from the subscriptions, if it is there.
func (s *Store) Unsubscribe(ctx context.Context, mailbox db.ID, name string) error {
	return errNotBuilt
}

// Subscriptions returns the names subscribed to, in order.
func (s *Store) Subscriptions(ctx context.Context, mailbox db.ID) ([]string, error) {
	return nil, errNotBuilt
}

// OpenMessage opens the bytes of a message, or returns a fault.NotFound when
// they are gone. The caller must Close the reader.
func (s *Store) OpenMessage(ctx context.Context, message db.ID) (*blob.Reader, error) {
	return nil, errNotBuilt
}

// Run deletes what nothing shows any more and tends the views, until ctx ends.
func (s *Store) Run(ctx context.Context) error { return errNotBuilt }

// Collect deletes messages that left their last folder longer than Grace ago,
// and returns how many.
func (s *Store) Collect(ctx context.Context) (int, error) { return 0, errNotBuilt }
