// SPDX-License-Identifier: Apache-2.0

package outbound

import (
	"context"

	"github.com/mailstead/mailstead/internal/account"
	"github.com/mailstead/mailstead/internal/blob"
	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/message"
	"github.com/mailstead/mailstead/internal/summary"
)

// ClassService is the class of mail that the service itself writes to a person. It may contain a
// link that signs in anyone who has it.
const ClassService = "service"

// SendServiceMail accepts a mail of the service itself to a person: from no-reply at the service's
// own name, for the operators' account. It isn't subject to a customer's domain, limits or
// suppressions, and isn't in a customer's list of messages. It returns after the commit, with a
// fault.Invalid if the address can't receive mail.
func (o *Outbox) SendServiceMail(ctx context.Context, to, subject, text string) error {
	defer o.Accepting.Begin(o.Now)()
	now := o.Now().UTC()
	s := SendRequest{FromEmail: "no-reply@" + o.Host, FromName: o.Host, To: []string{to}, Subject: subject, Text: text}
	l, bad := s.validate(now)
	if err := bad.Err(); err != nil {
		return err
	}
	l.class = ClassService
	l.draft.ExtraFields = append(l.draft.ExtraFields, message.ExtraField{Name: "Auto-Submitted", Value: "auto-generated"}) // RFC 3834 §5
	pc := &preparedMessage{send: l}
	o.initRow(account.OperatorAccount, pc, now)
	pc.row.thread = o.DB.NewID().String()
	if err := o.compose(ctx, pc); err != nil {
		return err
	}
	return o.commit(ctx, account.OperatorAccount, []*preparedMessage{pc}, nil)
}

// ServiceMailText returns the text of a mail of the service itself. It returns fault.NotFound if
// the message is gone or is no service mail.
func (o *Messages) ServiceMailText(ctx context.Context, id db.ID) (string, error) {
	r, err := o.loadRow(ctx, id)
	if err != nil {
		return "", err
	}
	if r.account != account.OperatorAccount || !r.private || !r.isFromAPI() {
		return "", notFoundError()
	}
	b, err := o.Blobs.Load(ctx, r.blob)
	if blob.IsLost(err) {
		return "", fault.Wrap(err, fault.NotFound, "message_lost", "The service has lost the text of this message.")
	}
	if err != nil {
		return "", err
	}
	in, err := b.Open(ctx)
	if err != nil {
		return "", err
	}
	defer in.Close() //nolint:errcheck // only read
	index, _, err := message.ScanReader(in.All())
	if err != nil {
		return "", err
	}
	_, c, err := summary.Read(in, index)
	if err != nil || c.Text == nil {
		return "", err
	}
	return *c.Text, nil
}
