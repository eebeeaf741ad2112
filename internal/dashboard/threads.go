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
	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/mailbox"
	"github.com/mailstead/mailstead/internal/message"
	"github.com/mailstead/mailstead/internal/summary"
)

// threadPageSize is the number of messages on a thread's page, which shows the beginning of each.
const threadPageSize = 20

// threadMessage is a message of a thread.
type threadMessage struct {
	ID                db.ID
	Path              string
	Out               bool
	From, To, Subject string
	State             string // of a sent message
	Beginning         string
	Lost              bool // whether its data can't be read
	At                time.Time
	open              messageOpener
	mailbox           db.ID
}

// thread shows a thread, oldest message first.
func (d *Dashboard) thread(v *requestContext) (page, error) {
	name := v.r.PathValue("id")
	if name == "" || utf8.RuneCountInString(name) > 255 || strings.ContainsFunc(name, func(c rune) bool { return !unicode.IsPrint(c) || c == utf8.RuneError }) {
		return page{}, notFound()
	}
	after := v.listPage().After
	turns, next, err := d.readThread(v, name, after)
	if err != nil {
		return page{}, err
	}
	if len(turns) == 0 && after == 0 && next == 0 {
		return page{}, notFound()
	}
	if err := v.auditMailRead("Read a thread", mailbox.Mailbox{}); err != nil {
		return page{}, err
	}
	data := struct {
		Name    string
		Subject string
		Turns   []threadMessage
		Next    string // path of the next page
	}{Name: name, Turns: turns}
	for i := range turns {
		data.Subject = cmp.Or(data.Subject, turns[i].Subject)
	}
	if next != 0 {
		data.Next = threadPath(name) + "?" + encodeQuery("after", next.String())
	}
	return page{Template: "thread", Title: "Thread: " + cmp.Or(data.Subject, noSubject), Section: "messages", Data: data}, nil
}

// readThread reads a page of sent and received messages of a thread, in one order. next is where
// the thread continues, or 0 at its end.
func (d *Dashboard) readThread(v *requestContext, name string, after db.ID) (all []threadMessage, next db.ID, err error) {
	sent, err := d.Outbox.InThread(v.ctx, v.session.Account, 0, name, after, threadPageSize+1)
	if err != nil {
		return nil, 0, err
	}
	for _, m := range sent {
		var to []string
		for _, r := range m.Deliveries {
			to = append(to, r.Recipient)
		}
		all = append(all, threadMessage{ID: m.ID, Path: "/messages/" + m.ID.String(), Out: true, From: m.From, To: strings.Join(to, ", "), Subject: m.Subject,
			State: string(m.Status), At: m.CreatedAt, open: func() (*message.Index, *blob.Reader, error) {
				return d.Outbox.OpenParts(v.ctx, v.session.Account, m.ID)
			}})
	}
	arrived, err := d.Folders.ThreadMessages(v.ctx, v.session.Account, 0, name, after, threadPageSize+1)
	if err != nil {
		return nil, 0, err
	}
	for _, m := range arrived {
		all = append(all, threadMessage{ID: m.ID, Path: "/received/" + m.Mailbox.String() + "/" + m.ID.String(), From: m.From, To: strings.Join(m.To, ", "), Subject: m.Subject,
			At: m.ID.Time(), mailbox: m.Mailbox, open: func() (*message.Index, *blob.Reader, error) { return d.Folders.OpenParts(v.ctx, m.ID) }})
	}
	slices.SortFunc(all, func(a, b threadMessage) int { return cmp.Compare(a.ID, b.ID) })
	if len(all) > threadPageSize {
		all = all[:threadPageSize]
		next = all[threadPageSize-1].ID
	}
	for i := range all {
		if err := d.readBeginning(v, &all[i]); err != nil {
			return nil, 0, err
		}
	}
	return slices.DeleteFunc(all, func(t threadMessage) bool { return t.Path == "" }), next, nil
}

// readBeginning reads the beginning of a message. It clears the path if the message or its mailbox
// was deleted.
func (d *Dashboard) readBeginning(v *requestContext, t *threadMessage) error {
	if t.mailbox != 0 {
		if _, err := d.Mailboxes.Get(v.ctx, v.session.Account, t.mailbox); err != nil {
			t.Path = ""
			if fault.Is(err, fault.NotFound) {
				err = nil
			}
			return err
		}
	}
	index, r, err := t.open()
	if fault.Is(err, fault.NotFound) {
		t.Path = "" // expunged in the meantime
		return nil
	}
	if fault.Is(err, fault.Denied) {
		return nil // only its recipient may read it
	}
	if err == nil {
		t.Beginning, err = summary.Preview(r, index)
		_ = r.Close() // only read
	}
	t.Lost, err = v.reportLost(err)
	return err
}
