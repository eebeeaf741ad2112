// SPDX-License-Identifier: Apache-2.0

package api

import (
	"bufio"
	"context"
	"errors"
	"strings"

	"github.com/mailstead/mailstead/internal/account"
	"github.com/mailstead/mailstead/internal/apijson"
	"github.com/mailstead/mailstead/internal/blob"
	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/folder"
	"github.com/mailstead/mailstead/internal/message"
	"github.com/mailstead/mailstead/internal/outbound"
	"github.com/mailstead/mailstead/internal/summary"
	"github.com/mailstead/mailstead/internal/web"
)

// maxThreadTextBytes is how many bytes of messages one request reads for their texts.
const maxThreadTextBytes = 64 << 20

// textBudget is how many bytes of messages may still be read for their texts; 0 or less for none.
type textBudget int64

// take reports whether a message of a size may be read.
func (b *textBudget) take(size int64) bool {
	if textBudget(size) > *b {
		return false
	}
	*b -= textBudget(size)
	return true
}

// newThreadMessage converts a message, without the content that the principal's key may not see. If
// texts are asked for, it reads the message's text; the principal may read mail then.
func (a *API) newThreadMessage(ctx context.Context, p account.Principal, m web.ThreadMessage, texts bool, left *textBudget) (threadMessage, error) {
	if m.Sent != nil {
		return a.newSentThreadMessage(ctx, redactMessage(p, *m.Sent), texts, left)
	}
	out := newReceivedThreadMessage(*m.Received)
	if !p.HasScope(mailReadScope) {
		out.From, out.To, out.Cc, out.Subject, out.ContentOmitted = []summary.Address{}, []summary.Address{}, []summary.Address{}, "", true
	}
	if out.TextTruncated = texts && !left.take(out.Size); !texts || out.TextTruncated {
		return out, nil
	}
	index, r, err := a.Folders.OpenParts(ctx, m.ID)
	if err != nil {
		return out, ignoreMissing(err)
	}
	defer r.Close() //nolint:errcheck // only read
	return out, ignoreMissing(out.addText(r, index))
}

func (a *API) newSentThreadMessage(ctx context.Context, m outbound.Message, texts bool, left *textBudget) (threadMessage, error) {
	out := threadMessage{
		ID: m.ID, ContentOmitted: m.Redacted, Direction: "outbound", Status: &m.Status, MessageID: m.MessageID, From: summary.ParseAddresses(m.From),
		To: []summary.Address{}, Cc: []summary.Address{}, Bcc: []summary.Address{}, Subject: m.Subject, Size: m.Size, CreatedAt: utcTime(m.CreatedAt),
	}
	if m.Mailbox != 0 {
		out.MailboxID = &m.Mailbox
	}
	out.TextTruncated = texts && !left.take(m.Size)
	names, err := a.addSentText(ctx, m, &out, texts && !out.TextTruncated)
	if err != nil {
		return out, err
	}
	for _, d := range m.Deliveries {
		to := summary.Address{Email: d.Recipient, Name: names[strings.ToLower(d.Recipient)]}
		switch d.Kind {
		case "cc":
			out.Cc = append(out.Cc, to)
		case "bcc":
			out.Bcc = append(out.Bcc, to)
		default:
			out.To = append(out.To, to)
		}
	}
	return out, nil
}

// addSentText adds the text of a sent message, if it is asked for, and returns the names of the
// recipients in its header. There are none if the message was forwarded and is redacted, or is no
// longer there.
func (a *API) addSentText(ctx context.Context, m outbound.Message, out *threadMessage, text bool) (names map[string]apijson.NullString, err error) {
	if m.Redacted {
		return nil, nil
	}
	r, err := a.Outbox.Open(ctx, m.Account, m.ID)
	if err != nil {
		return nil, ignoreMissing(err)
	}
	defer r.Close() //nolint:errcheck // only read
	var header message.Header
	if text {
		var index *message.Structure
		if index, header, err = message.ScanReader(r.All()); err == nil {
			err = out.addText(r, index)
		}
	} else if header, err = message.ReadHeader(bufio.NewReader(r.All())); fault.Is(err, fault.TooLarge) {
		err = nil // the names are a convenience
	}
	if err != nil {
		return nil, ignoreMissing(err)
	}
	names = map[string]apijson.NullString{}
	for _, field := range []string{"To", "Cc"} {
		for _, to := range header.Addresses(field) {
			names[strings.ToLower(to.String())] = summary.NewAddress(to).Name
		}
	}
	return names, nil
}

func newReceivedThreadMessage(m folder.ThreadMessage) threadMessage {
	return threadMessage{
		ID: m.ID, Direction: "inbound", MailboxID: &m.Mailbox, MessageID: m.MessageID, From: summary.NewAddresses(m.From), To: summary.NewAddresses(m.To),
		Cc: summary.NewAddresses(m.Cc), Bcc: []summary.Address{}, Subject: m.Subject, Size: m.Size, CreatedAt: utcTime(m.ID.Time()),
	}
}

// addText reads the plain text of the message.
func (t *threadMessage) addText(r *blob.Reader, index *message.Structure) error {
	_, content, err := summary.Read(r, index)
	t.Text, t.TextTruncated = content.Text, content.TextTruncated
	return err
}

// ignoreMissing returns nil for the error of a message that was deleted or lost, or that the
// service wrote to its recipient alone.
func ignoreMissing(err error) error {
	if blob.IsLost(err) || fault.Is(err, fault.NotFound) || fault.Is(err, fault.Denied) || errors.Is(err, db.ErrNoRow) {
		return nil
	}
	return err
}
