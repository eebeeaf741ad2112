// SPDX-License-Identifier: Apache-2.0

package folder

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/mailstead/mailstead/internal/testkit"

	"github.com/mailstead/mailstead/internal/blob"
	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/db/dbtest"
	"github.com/mailstead/mailstead/internal/event"
	"github.com/mailstead/mailstead/internal/folder/snapshot"
	"github.com/mailstead/mailstead/internal/lease"
	"github.com/mailstead/mailstead/internal/lease/leasetest"
	"github.com/mailstead/mailstead/internal/mailbox"
	"github.com/mailstead/mailstead/internal/message"
	"github.com/mailstead/mailstead/internal/notify"
)

// fixture is a store with one mailbox.
type fixture struct {
	testing.TB
	*Folders
	db    *db.DB
	box   db.ID
	clock *atomic.Int64 // seconds by which the clock is ahead
}

var (
	readUse       = db.SQL(`SELECT bytes, messages, surcharge FROM mailbox_usage WHERE mailbox = $1`)
	readSurcharge = db.SQL(`SELECT surcharge, surcharge_mark FROM folder WHERE id = $1`)
	setQuota      = db.SQL(`UPDATE mailbox SET quota = $2 WHERE id = $1`)
	readEvents    = db.SQL(`SELECT data FROM event ORDER BY id`)
	countBlobs    = db.SQL(`SELECT (SELECT COUNT(*) FROM message), (SELECT COUNT(*) FROM blob), (SELECT COUNT(*) FROM expunged_message)`)
)

func each(t *testing.T, f func(h *fixture)) {
	t.Helper()
	dbtest.EachURL(t, func(t *testing.T, url string) {
		d, node := leasetest.Open(t, url)
		f(newFixture(t, d, node))
	})
}

func newFixture(t testing.TB, d *db.DB, node *lease.Node) *fixture {
	h := &fixture{TB: t, db: d, clock: &atomic.Int64{}}
	h.Folders = h.newFolders(d, node, Options{})
	h.box = h.newMailbox(1 << 40)
	return h
}

func (h *fixture) newFolders(d *db.DB, node *lease.Node, o Options) *Folders {
	files, err := blob.NewDir(h.TempDir())
	h.must(err)
	now := func() time.Time { return time.Now().Add(time.Duration(h.clock.Load()) * time.Second) }
	o.DB, o.Hub, o.Now = d, &notify.Hub{}, now
	o.Blobs = &blob.Store{DB: d, Files: files, Now: now}
	o.Events = &event.Log{DB: d, Node: node, Hub: o.Hub, Now: now}
	return New(o)
}

func (h *fixture) newMailbox(quota int64) db.ID {
	box := testkit.AddAccountWithMailbox(h, h.db, quota)
	h.must(h.db.Tx(h.ctx(), func(tx *db.Tx) error { return h.Provision(h.ctx(), tx, box) }))
	return box
}

func (h *fixture) ctx() context.Context { return h.Context() }

func (h *fixture) must(err error) {
	h.Helper()
	if err != nil {
		h.Fatal(err)
	}
}

func (h *fixture) delete(s *Folders, name string) {
	h.Helper()
	_, err := s.Delete(h.ctx(), h.box, name)
	h.must(err)
}

func mail(subject, body string) string {
	return "From: Ann <ann@example.com>\r\nTo: bob@demo.test\r\nSubject: " + subject +
		"\r\nDate: Mon, 2 Mar 2026 23:30:00 -0500\r\nMessage-ID: <" + subject + "@example.com>\r\n\r\n" + body
}

func (h *fixture) upload(text string, flags Flags, keywords ...string) Upload {
	h.Helper()
	b, err := h.Blobs.FromBytes(h.ctx(), []byte(text))
	h.must(err)
	ix, header, err := message.ScanReader(strings.NewReader(text))
	h.must(err)
	d, err := NewMetadata(header, ix)
	h.must(err)
	return Upload{Blob: b, Metadata: d, Flags: flags, Keywords: keywords}
}

// fill appends n messages to a folder.
func (h *fixture) fill(name string, n int) (uids []uint32) {
	h.Helper()
	for n > 0 {
		chunk := make([]Upload, min(n, 500))
		for i := range chunk {
			chunk[i] = h.upload(mail(fmt.Sprint(n-i), "Hello."), 0)
		}
		_, got, err := h.Append(h.ctx(), h.box, name, chunk...)
		h.must(err)
		uids = append(uids, got...)
		n -= len(chunk)
	}
	return uids
}

func (h *fixture) deliver(subject string) MessageRef {
	h.Helper()
	u := h.upload(mail(subject, "Hello."), 0)
	f, err := h.Deliver(h.ctx(), Delivery{Mailbox: h.box, Blob: u.Blob, Metadata: u.Metadata})
	h.must(err)
	return f
}

func (h *fixture) view(name string) *View {
	h.Helper()
	v, err := h.Open(h.ctx(), h.box, name, false)
	h.must(err)
	h.Cleanup(v.Close)
	return v
}

func (h *fixture) sync(v *View, expunge bool) Changes {
	h.Helper()
	c, err := v.Sync(h.ctx(), expunge)
	h.must(err)
	return c
}

func (h *fixture) status(name string) Folder {
	h.Helper()
	f, err := h.Status(h.ctx(), h.box, name)
	h.must(err)
	return f
}

func (h *fixture) recent(name string) uint32 {
	h.Helper()
	f := h.status(name)
	n, err := h.CountRecent(h.ctx(), &f)
	h.must(err)
	return n
}

// checkCounts compares the counters with the rows.
func (h *fixture) checkCounts() {
	h.Helper()
	folders, err := h.List(h.ctx(), h.box)
	h.must(err)
	var sum totals
	for _, f := range folders {
		var t totals
		h.must(h.db.Each(h.ctx(), messagesFromQuery.With(f.ID, 0, 1<<30), func(r db.Row) error {
			var uid, flags, size, modseq int64
			var words string
			err := r.Scan(&uid, &flags, &words, &size, &modseq)
			t.add(snapshot.Entry{Flags: Flags(flags), Size: uint32(size)})
			if modseq > int64(f.ModSeq) || uid >= int64(f.UIDNext) {
				h.Errorf("%s: UID %d with modseq %d, folder has %d, %d", f.Name, uid, modseq, f.UIDNext, f.ModSeq)
			}
			return err
		}))
		got, mark := totals{int64(f.Messages), int64(f.Unseen), f.Bytes, 0}, int64(0)
		h.must(h.db.One(h.ctx(), readSurcharge.With(f.ID), &got.surcharge, &mark))
		if got != t || mark != 2*int64(f.UIDNext)-int64(f.Messages) {
			h.Errorf("%s counts %+v with mark %d, holds %+v and has UIDNEXT %d", f.Name, got, mark, t, f.UIDNext)
		}
		sum.messages += t.messages
		sum.bytes += t.bytes
		sum.surcharge += t.surcharge
	}
	if got := h.use(h.box); got != sum.usage() {
		h.Errorf("the mailbox counts %+v, holds %+v", got, sum.usage())
	}
}

// use returns the counted usage of a mailbox.
func (h *fixture) use(box db.ID) (u mailbox.Usage) {
	h.Helper()
	h.must(h.db.One(h.ctx(), readUse.With(box), &u.Bytes, &u.Messages, &u.Overhead))
	return u
}

// show formats what a session knows.
func (v *View) show() string {
	var b strings.Builder
	for i, e := range v.snap.Between(0, v.snap.Len()) {
		fmt.Fprintf(&b, "%d:%d", i+1, e.UID)
		for bit, name := range []string{"S", "A", "F", "D", "R"} {
			if e.Flags&(1<<bit) != 0 {
				b.WriteString(name)
			}
		}
		if words := v.shared.keywords.Keywords(e.Keywords); len(words) > 0 {
			fmt.Fprint(&b, words)
		}
		b.WriteByte(' ')
	}
	return strings.TrimSpace(b.String())
}

func (h *fixture) expect(what, got, want string) {
	h.Helper()
	if got != want {
		h.Errorf("%s: got %s, want %s", what, got, want)
	}
}

func numbers(n ...uint32) []uint32 { return n }

func equal(a, b []uint32) bool { return slices.Equal(a, b) }
