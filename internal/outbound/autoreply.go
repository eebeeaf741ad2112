// SPDX-License-Identifier: Apache-2.0

package outbound

import (
	"context"

	"github.com/mailstead/mailstead/internal/address"
	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/message"
	"github.com/mailstead/mailstead/internal/queue"
	"github.com/mailstead/mailstead/internal/quota"
)

// AutoReply is an automatic reply of a mailbox (RFC 3834).
type AutoReply struct {
	Account    db.ID
	Mailbox    db.ID
	Name       string // of the mailbox's owner; may be ""
	From       address.Address
	To         address.Address
	Subject    string // a single line
	Text       string
	InReplyTo  string   // with angle brackets; "" for none
	References []string // with angle brackets, nearest last
	Thread     string   // thread of the reply; "" starts a new one
	// Condition decides, in the commit, whether the reply is sent: it is sent if Condition returns
	// a row.
	Condition db.Statement
}

// PrepareAutoReply prepares an automatic reply. It is sent from the null sender, so that no bounce
// comes back. It returns fault.Denied if the account may not send it or if the recipient is
// suppressed.
func (o *Outbox) PrepareAutoReply(ctx context.Context, a AutoReply) (*PendingMessage, error) {
	if err := o.checkActive(ctx, a.Account); err != nil {
		return nil, err
	}
	sender, err := o.Domains.SendingDomain(ctx, a.Account, a.From.Domain)
	if err != nil {
		return nil, err
	}
	blocked, err := o.Suppressions.Blocked(ctx, a.Account, []address.Address{a.To}, false)
	if err != nil {
		return nil, err
	}
	if len(blocked) > 0 {
		return nil, fault.New(fault.Denied, "suppressed", "This recipient gets no mail of the account.")
	}
	now := o.Now().UTC()
	id := o.DB.NewID()
	if headerAddress(a.Name, a.From).AuthorProblem() != "" {
		a.Name = "" // the name contains someone else's address
	}
	draft := message.Draft{
		Date: now, MessageID: "<" + id.String() + "@" + a.From.Domain + ">",
		From: headerAddress(a.Name, a.From), To: []message.Address{headerAddress("", a.To)},
		Subject: a.Subject, InReplyTo: a.InReplyTo, References: a.References, Text: a.Text,
		// Exchange evaluates the second field.
		ExtraFields: []message.ExtraField{{Name: "Auto-Submitted", Value: "auto-replied"}, {Name: "X-Auto-Response-Suppress", Value: "All"}},
	}
	r := &row{
		id: id, account: a.Account, domain: sender.Domain, mailbox: a.Mailbox, from: draft.From.String(), subject: db.CleanText(a.Subject, maxSubject),
		messageID: draft.MessageID, thread: a.Thread, metadata: "{}", created: now, expires: now.Add(ExpiryAPI),
	}
	if r.thread == "" {
		r.thread = id.String()
	}
	w := o.Blobs.Create(ctx)
	defer w.Abort()
	composed, err := message.Compose(w, &draft)
	if err != nil {
		return nil, err
	}
	pc := &preparedMessage{row: r, recipients: []queue.Recipient{{Address: a.To.String(), Kind: "envelope", Destination: a.To.Domain}}}
	if pc.blob, err = w.Finish(); err != nil {
		return nil, err
	}
	r.blob, r.size, r.utf8 = pc.blob.ID, pc.blob.Size, composed.NeedsUTF8
	r.setReference()
	return o.newPending(ctx, pc, quota.Consumer{Account: a.Account}, &a.Condition)
}

// headerAddress converts an envelope address to a header address.
func headerAddress(name string, a address.Address) message.Address {
	return message.Address{Name: name, Local: a.UnquotedLocal(), Domain: a.Domain}
}
