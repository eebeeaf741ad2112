// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/mailstead/mailstead/internal/blob"
	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/mailbox"
	"github.com/mailstead/mailstead/internal/message"
	"github.com/mailstead/mailstead/internal/summary"
	"github.com/mailstead/mailstead/internal/web"
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
}

// thread shows a thread, oldest message first.
func (d *Dashboard) thread(v *requestContext) (page, error) {
	name := v.r.PathValue("id")
	if !web.ValidThreadID(name) {
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
	page, more, err := d.ThreadPage(v.ctx, v.session.Account, 0, name, after, threadPageSize)
	if err != nil {
		return nil, 0, err
	}
	if more {
		next = page[len(page)-1].ID
	}
	if page, err = d.OmitDeletedMailboxMessages(v.ctx, v.session.Account, page); err != nil {
		return nil, 0, err
	}
	for _, m := range page {
		all = append(all, d.newThreadMessage(v, m))
	}
	for i := range all {
		if err := d.readBeginning(v, &all[i]); err != nil {
			return nil, 0, err
		}
	}
	return slices.DeleteFunc(all, func(t threadMessage) bool { return t.Path == "" }), next, nil
}

// displayAddresses returns addresses as a line of text.
func displayAddresses(list []message.Address) string {
	var all []string
	for _, a := range list {
		all = append(all, a.Display())
	}
	return strings.Join(all, ", ")
}

func (d *Dashboard) newThreadMessage(v *requestContext, m web.ThreadMessage) threadMessage {
	if in := m.Received; in != nil {
		return threadMessage{ID: in.ID, Path: "/received/" + in.Mailbox.String() + "/" + in.ID.String(), From: displayAddresses(in.From), To: displayAddresses(in.To), Subject: in.Subject,
			At: in.ID.Time(), open: func() (*message.Structure, *blob.Reader, error) { return d.Folders.OpenParts(v.ctx, in.ID) }}
	}
	out := m.Sent
	var to []string
	for _, r := range out.Deliveries {
		to = append(to, r.Recipient)
	}
	return threadMessage{ID: out.ID, Path: "/messages/" + out.ID.String(), Out: true, From: out.From, To: strings.Join(to, ", "), Subject: out.Subject, State: string(out.Status), At: out.CreatedAt,
		open: func() (*message.Structure, *blob.Reader, error) {
			return d.Outbox.OpenParts(v.ctx, v.session.Account, out.ID)
		}}
}

// readBeginning reads the beginning of a message. It clears the path if the message was expunged.
func (d *Dashboard) readBeginning(v *requestContext, t *threadMessage) error {
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
