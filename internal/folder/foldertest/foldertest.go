// SPDX-License-Identifier: Apache-2.0

// Package foldertest creates folders for tests of the packages that use them.
package foldertest

import (
	"strings"
	"testing"
	"time"

	"github.com/mailstead/mailstead/internal/blob"
	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/event"
	"github.com/mailstead/mailstead/internal/folder"
	"github.com/mailstead/mailstead/internal/lease"
	"github.com/mailstead/mailstead/internal/message"
	"github.com/mailstead/mailstead/internal/notify"
	"github.com/mailstead/mailstead/internal/testkit"
)

// New returns Folders over a database that a node has joined. It fills in the options that all
// tests have in common.
func New(t testing.TB, d *db.DB, node *lease.Node, o folder.Options) *folder.Folders {
	t.Helper()
	files, err := blob.NewDir(t.TempDir())
	must(t, err)
	if o.Now == nil {
		o.Now = time.Now
	}
	o.DB, o.Hub = d, &notify.Hub{}
	o.Blobs = &blob.Store{DB: d, Files: files, Now: o.Now}
	o.Events = &event.Log{DB: d, Node: node, Hub: o.Hub, Now: o.Now}
	return folder.New(o)
}

// AddMailbox adds a mailbox with its first folders.
func AddMailbox(t testing.TB, s *folder.Folders) db.ID {
	t.Helper()
	box := testkit.AddAccountWithMailbox(t, s.DB, 1<<40)
	must(t, s.DB.Tx(t.Context(), func(tx *db.Tx) error { return s.Provision(t.Context(), tx, box) }))
	return box
}

// NewUpload returns a message to append.
func NewUpload(t testing.TB, s *folder.Folders, text string) folder.Upload {
	t.Helper()
	b, err := s.Blobs.FromBytes(t.Context(), []byte(text))
	must(t, err)
	ix, header, err := message.ScanReader(strings.NewReader(text))
	must(t, err)
	d, err := folder.NewMetadata(header, ix)
	must(t, err)
	return folder.Upload{Blob: b, Metadata: d}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
