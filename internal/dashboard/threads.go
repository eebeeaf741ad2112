// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"cmp"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/mailstead/mailstead/internal/blob"
	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/digest"
	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/mailbox"
	"github.com/mailstead/mailstead/internal/message"
)

// threadPage is how many messages of a conversation a page shows; the beginning
// of each is read.
const threadPage = 20

// turn is a message of a conversation.
type turn struct {
	ID                db.ID
	Path              string
	Out               bool
	From, To, Subject string
	State             string // of one that was sent
	Beginning         string
	Lost              bool // its bytes can't be read
	At                time.Time
	open              opener
	box               db.ID
}

// thread shows a conversation, oldest first.
func (d *Dashboard) thread(v *visit) (page, error) {
	name := v.r.PathValue("id")
	if name == "" || utf8.RuneCountInString(name) > 255 || strings.ContainsFunc(name, func(c rune) bool { return !unicode.IsPrint(c) || c == utf8.RuneError }) {
		return page{}, notFound()
	}
	after := v.pageOf().After
	turns, next, err := d.turns(v, name, after)
	if err != nil {
		return page{}, err
	}
	if len(turns) == 0 && after == 0 && next == 0 {
		return page{}, notFound()
	}
	if err := v.reads("Read a thread", mailbox.Mailbox{}); err != nil {
		return page{}, err
	}
	data := struct {
		Name    string
		Subject string
		Turns   []turn
		Next    string // the path of what is later
	}{Name: name, Turns: turns}
	for i := range turns {
		data.Subject = cmp.Or(data.Subject, turns[i].Subject)
	}
	if next != 0 {
		data.Next = threadPath(name) + "?" + query("after", next.String())
	}
	return page{Template: "thread", Title: "Thread: " + cmp.Or(data.Subject, unnamed), Section: "messages", Data: data}, nil
}

// turns reads a page of a conversation, what was sent and what arrived, in one
// order. next is where it goes on, 0 at its end.
func (d *Dashboard) turns(v *visit, name string, after db.ID) (all []turn, next db.ID, err error) {
	sent, err := d.Outbox.InThread(v.ctx, v.in.Account, 0, name, after, threadPage+1)
	if err != nil {
		return nil, 0, err
	}
	for _, m := range sent {
		var to []string
		for _, r := range m.Deliveries {
			to = append(to, r.Recipient)
		}
		all = append(all, turn{ID: m.ID, Path: "/messages/" + m.ID.String(), Out: true, From: m.From, To: strings.Join(to, ", "), Subject: m.Subject,
			State: string(m.Status), At: m.CreatedAt, open: func() (*message.Index, *blob.Reader, error) { return d.Outbox.OpenParts(v.ctx, v.in.Account, m.ID) }})
	}
	arrived, err := d.Folders.Arrivals(v.ctx, v.in.Account, 0, name, after, threadPage+1)
	if err != nil {
		return nil, 0, err
	}
	for _, m := range arrived {
		all = append(all, turn{ID: m.ID, Path: "/received/" + m.Mailbox.String() + "/" + m.ID.String(), From: m.From, To: strings.Join(m.To, ", "), Subject: m.Subject,
			At: m.ID.Time(), box: m.Mailbox, open: func() (*message.Index, *blob.Reader, error) { return d.Folders.OpenParts(v.ctx, m.ID) }})
	}
	slices.SortFunc(all, func(a, b turn) int { return cmp.Compare(a.ID, b.ID) })
	if len(all) > threadPage {
		all = all[:threadPage]
		next = all[threadPage-1].ID
	}
	for i := range all {
		if err := d.begin(v, &all[i]); err != nil {
			return nil, 0, err
		}
	}
	return slices.DeleteFunc(all, func(t turn) bool { return t.Path == "" }), next, nil
}

// begin reads how a message begins. One that is gone, or whose mailbox is, loses
// its path.
func (d *Dashboard) begin(v *visit, t *turn) error {
	if t.box != 0 {
		if _, err := d.Mailboxes.Get(v.ctx, v.in.Account, t.box); err != nil {
			t.Path = ""
			if fault.Is(err, fault.NotFound) {
				err = nil
			}
			return err
		}
	}
	index, r, err := t.open()
	if fault.Is(err, fault.NotFound) {
		t.Path = "" // expunged meanwhile
		return nil
	}
	if fault.Is(err, fault.Denied) {
		return nil // only its recipient reads it
	}
	if err == nil {
		t.Beginning, err = digest.Preview(r, index)
		_ = r.Close() // only read
	}
	t.Lost, err = v.lost(err)
	return err
}
