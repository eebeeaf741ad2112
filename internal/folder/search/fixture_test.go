// SPDX-License-Identifier: Apache-2.0

package search

import (
	"context"
	"testing"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/db/dbtest"
	"github.com/mailstead/mailstead/internal/folder"
	"github.com/mailstead/mailstead/internal/folder/foldertest"
	"github.com/mailstead/mailstead/internal/lease/leasetest"
)

// fixture is a store with one mailbox, and a Searcher without an index.
type fixture struct {
	testing.TB
	*folder.Folders
	*Searcher
	box db.ID
}

func each(t *testing.T, f func(h *fixture)) {
	t.Helper()
	dbtest.EachURL(t, func(t *testing.T, url string) { f(newFixture(t, url)) })
}

func newFixture(t testing.TB, url string) *fixture {
	d, node := leasetest.Open(t, url)
	h := &fixture{TB: t, Folders: foldertest.New(t, d, node, folder.Options{})}
	h.Searcher, h.box = New(h.Folders, nil), foldertest.AddMailbox(t, h.Folders)
	return h
}

func (h *fixture) ctx() context.Context { return h.Context() }

func (h *fixture) must(err error) {
	h.Helper()
	if err != nil {
		h.Fatal(err)
	}
}

func mail(subject, body string) string {
	return "From: Ann <ann@example.com>\r\nTo: bob@demo.test\r\nSubject: " + subject +
		"\r\nDate: Mon, 2 Mar 2026 23:30:00 -0500\r\nMessage-ID: <" + subject + "@example.com>\r\n\r\n" + body
}

func (h *fixture) upload(text string) folder.Upload {
	h.Helper()
	return foldertest.NewUpload(h, h.Folders, text)
}

// append appends messages to the inbox.
func (h *fixture) append(all ...folder.Upload) (uids []uint32) {
	h.Helper()
	_, uids, err := h.Append(h.ctx(), h.box, folder.Inbox, all...)
	h.must(err)
	return uids
}

// view opens the inbox.
func (h *fixture) view() *folder.View {
	h.Helper()
	v, err := h.Open(h.ctx(), h.box, folder.Inbox, false)
	h.must(err)
	h.Cleanup(v.Close)
	return v
}

func numbers(n ...uint32) []uint32 { return n }
