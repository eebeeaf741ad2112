// SPDX-License-Identifier: Apache-2.0

package inbound_test

import (
	"context"
	"io"
	"log/slog"
	"testing"
	"time"

	"github.com/mailstead/mailstead/internal/credential/credentialtest"

	"github.com/mailstead/mailstead/internal/testkit"

	"github.com/mailstead/mailstead/internal/account"
	"github.com/mailstead/mailstead/internal/address"
	"github.com/mailstead/mailstead/internal/blob"
	"github.com/mailstead/mailstead/internal/credential"
	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/db/dbtest"
	"github.com/mailstead/mailstead/internal/domain"
	"github.com/mailstead/mailstead/internal/event"
	"github.com/mailstead/mailstead/internal/folder"
	"github.com/mailstead/mailstead/internal/inbound"
	"github.com/mailstead/mailstead/internal/lease/leasetest"
	"github.com/mailstead/mailstead/internal/mailbox"
	"github.com/mailstead/mailstead/internal/notify"
	"github.com/mailstead/mailstead/internal/outbound"
	"github.com/mailstead/mailstead/internal/queue"
	"github.com/mailstead/mailstead/internal/quota"
	"github.com/mailstead/mailstead/internal/ratelimit"
	"github.com/mailstead/mailstead/internal/thread"
)

// fixture is a complete setup for receiving mail, with demo.test as the only domain.
type fixture struct {
	*inbound.Service
	t       testing.TB
	db      *db.DB
	hub     *notify.Hub
	boxes   *mailbox.Mailboxes
	account db.ID
	domain  db.ID
	mail    map[db.ID]*queue.OutboundMessage // messages that the queue may send
	blobs   string                           // directory of large messages
}

func each(t *testing.T, f func(h *fixture)) {
	dbtest.EachURL(t, func(t *testing.T, url string) { f(newFixture(t, url)) })
}

func newFixture(t testing.TB, url string) *fixture {
	t.Helper()
	d, node := leasetest.Open(t, url)
	large := t.TempDir()
	files, err := blob.NewDir(large)
	if err != nil {
		t.Fatal(err)
	}
	h := &fixture{t: t, db: d, hub: &notify.Hub{}, mail: map[db.ID]*queue.OutboundMessage{}, blobs: large}
	log := slog.New(slog.DiscardHandler)
	blobs := &blob.Store{DB: d, Files: files, Now: time.Now}
	events := &event.Log{DB: d, Node: node, Hub: h.hub, Now: time.Now, LoadContent: (&inbound.EventContent{Blobs: blobs, Log: log}).Load}
	accounts := account.New(d, h.hub, time.Now)
	owner, err := accounts.Create(t.Context(), "owner@example.com", "")
	if err != nil {
		t.Fatal(err)
	}
	h.account, h.domain = owner.ID, testkit.AddDomain(t, d, owner.ID, "demo.test", true)
	folders := folder.New(folder.Options{DB: d, Blobs: blobs, Events: events, Hub: h.hub, Now: time.Now, Log: log})
	h.boxes = mailbox.Open(mailbox.Options{
		DB: d, Hub: h.hub, Events: events, Accounts: accounts, Hasher: credential.NewHasherWithCost(credentialtest.Cost), Logins: ratelimit.NewLoginLimiter(d, []byte("a key"), nil), Now: time.Now,
		VerifiedName: func(context.Context, db.ID, db.ID) (string, error) { return "demo.test", nil },
		FindHosted: func(_ context.Context, name string) (domain.HostedDomain, bool, error) {
			return domain.HostedDomain{Domain: h.domain, Account: h.account}, name == "demo.test", nil
		},
		CreateFolders: folders.Provision,
	})
	q := queue.New(queue.Options{
		DB: d, Node: node, Events: events, Hub: h.hub, Key: testkit.Key(t), Now: time.Now, Log: log,
		Prepare:     func(_ context.Context, id db.ID) (*queue.OutboundMessage, error) { return h.mail[id], nil },
		Describe:    func(_ context.Context, id db.ID) (queue.MessageInfo, error) { return h.about(id), nil },
		ChooseAgent: func(context.Context, string) (queue.Agent, error) { return h.Service, nil },
	})
	h.Service = inbound.New(inbound.Options{
		Outbox:  &outbound.Outbox{Limits: &quota.Limiter{DB: d, Events: events, Hub: h.hub, Defaults: quota.Defaults(), Now: time.Now}},
		Threads: &thread.Threads{NewID: d.NewID, Sources: []thread.Source{folders}},
		Domains: domain.New(domain.Options{DB: d, Hub: h.hub, Now: time.Now}),
		Host:    "mail.host.test", BaseURL: "https://mail.host.test", Key: testkit.Key(t), Blobs: blobs, Events: events, Mailboxes: h.boxes, Folders: folders, Queue: q, Now: time.Now, Log: log,
	})
	return h
}

func (h *fixture) about(id db.ID) queue.MessageInfo {
	return queue.MessageInfo{Account: h.account, MessageID: "<" + id.String() + "@demo.test>"}
}

func (h *fixture) box(local string, quotaMB int) mailbox.Mailbox {
	h.t.Helper()
	box, _, err := h.boxes.Create(h.t.Context(), h.account, mailbox.CreateParams{Domain: h.domain, LocalPart: local, QuotaMB: &quotaMB})
	if err != nil {
		h.t.Fatal(err)
	}
	return box
}

// filedMessage is a message stored in a mailbox.
type filedMessage struct {
	text, messageID, structure string
	outbound                   db.ID
}

var messagesOf = db.SQL(`SELECT blob, outbound, message_id, structure FROM message WHERE mailbox = $1 ORDER BY id`)

func (h *fixture) filed(box mailbox.Mailbox) []filedMessage {
	h.t.Helper()
	ctx := h.t.Context()
	type row struct {
		blob db.ID
		filedMessage
	}
	rows, err := db.All(ctx, h.db, messagesOf.With(box.ID), func(r db.Row) (f row, err error) {
		var structure []byte
		err = r.Scan(&f.blob, &f.outbound, &f.messageID, &structure)
		f.structure = string(structure)
		return f, err
	})
	if err != nil {
		h.t.Fatal(err)
	}
	var all []filedMessage
	for _, f := range rows {
		b, err := h.Blobs.Load(ctx, f.blob)
		if err != nil {
			h.t.Fatal(err)
		}
		r, err := b.Open(ctx)
		if err != nil {
			h.t.Fatal(err)
		}
		text, err := io.ReadAll(r.All())
		if err != nil {
			h.t.Fatal(err)
		}
		if err := r.Close(); err != nil {
			h.t.Fatal(err)
		}
		f.text = string(text)
		all = append(all, f.filedMessage)
	}
	return all
}

var eventsOf = db.SQL(`SELECT kind, data FROM event WHERE account = $1 ORDER BY id`)

// events returns the data, as JSON, of an account's events of a kind.
func (h *fixture) events(kind string) (all []string) {
	h.t.Helper()
	err := h.db.Each(h.t.Context(), eventsOf.With(h.account), func(r db.Row) error {
		var k, data string
		err := r.Scan(&k, &data)
		if k == kind {
			all = append(all, data)
		}
		return err
	})
	if err != nil {
		h.t.Fatal(err)
	}
	return all
}

func addr(t testing.TB, s string) address.Address {
	t.Helper()
	a, err := address.Parse(s)
	if err != nil {
		t.Fatal(err)
	}
	return a
}
