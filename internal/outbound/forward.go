// SPDX-License-Identifier: Apache-2.0

package outbound

import (
	"context"
	"strings"

	"github.com/mailstead/mailstead/internal/account"
	"github.com/mailstead/mailstead/internal/address"
	"github.com/mailstead/mailstead/internal/blob"
	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/message"
	"github.com/mailstead/mailstead/internal/queue"
	"github.com/mailstead/mailstead/internal/quota"
	"github.com/mailstead/mailstead/internal/smtpclient"
)

// ForwardRequest is a message that goes on to addresses elsewhere as it came: it is
// neither mended nor signed, so that its author's signatures still hold; form says what
// of it is re-encoded.
type ForwardRequest struct {
	Account, Domain db.ID  // who forwards it, and in whose name; account.OperatorAccount is the host
	Forwarder       db.ID  // the alias or the mailbox that leads there; of role mail the account; the domain, for a report that goes back
	RoleMail        bool   // it is mail to a role address, which counts by quota.RoleMailConsumer
	Sender          string // MAIL FROM; "" is the null sender
	To              []address.Address
	Blob            *blob.Blob // has no row yet
	Header          message.Header
	UTF8            bool // a header holds bytes above 127
	EightBit        bool // the body holds such
	Private         bool // only its recipient reads it
	RequireTLS      bool // as its sender demanded (RFC 8689)
	DSNOptions      DSNOptions
}

// limitSubject is whom a forwarded message counts for.
func (f *ForwardRequest) limitSubject(r *row) quota.Consumer {
	switch {
	case f.RoleMail:
		return quota.RoleMailConsumer(f.Account)
	case r.isReturnedReport():
		return quota.ReturnedMailConsumer(f.Account)
	}
	return quota.Consumer{Account: f.Account}
}

// DSNOptions is what the sender of a message asked to be told of it, which goes along with
// the message (RFC 3461 §5.2.7).
type DSNOptions struct {
	Notify            smtpclient.Notify // 0: nothing, which is to be told of failure
	OriginalRecipient string            // ORCPT as "rfc822;a@b", decoded
	Ret, EnvID        string
}

// notify is NOTIFY of what is forwarded: success is told of what becomes of the message
// here (RFC 3461 §5.2.7).
func (a DSNOptions) notify() smtpclient.Notify {
	const goesOn = smtpclient.NotifyFailure | smtpclient.NotifyDelay
	switch {
	case a.Notify == 0:
		return smtpclient.NotifyFailure
	case a.Notify&goesOn == 0:
		return smtpclient.NotifyNever
	}
	return a.Notify & goesOn
}

// isReturnedReport reports whether a message is a report on its way back to who sent what was
// forwarded. It goes there though the account is suspended meanwhile, or has lost the
// domain: its sender was told that the mail is in good hands (RFC 5321 §6.1).
func (r *row) isReturnedReport() bool {
	return r.sender == "" && r.forwarder != 0 && r.forwarder == r.domain
}

// mayBeUnsigned reports whether a message goes out without a domain's signature or seal
// where there is none: a report on its way back, and what the host itself forwards.
func (r *row) mayBeUnsigned() bool {
	return r.isReturnedReport() || r.account == account.OperatorAccount
}

// PrepareForward makes a message that is forwarded ready. It is no API mail: nobody is
// suppressed by what becomes of it. Its sender, if there is one, is told of
// failure alone, unless it asked for something else.
func (o *Outbox) PrepareForward(ctx context.Context, f ForwardRequest) (*PendingMessage, error) {
	now := o.Now().UTC()
	r := &row{
		id: o.DB.NewID(), account: f.Account, domain: f.Domain, forwarder: f.Forwarder, sender: f.Sender, metadata: "{}",
		from: cleanText(strings.TrimSpace(f.Header.Decoded("From")), maxSubject), subject: cleanText(f.Header.Decoded("Subject"), maxSubject),
		messageID: f.Header.MessageID(), blob: f.Blob.ID, size: f.Blob.Size, utf8: f.UTF8, eightBit: f.EightBit, private: f.Private,
		created: now, expires: now.Add(ExpirySubmission), requireTLS: tlsPreference(f.RequireTLS, f.Header),
		ret: f.DSNOptions.Ret, envid: f.DSNOptions.EnvID,
	}
	if !r.isReturnedReport() {
		if err := o.checkActive(ctx, f.Account); err != nil {
			return nil, err
		}
	}
	if f.Private {
		r.ret = "HDRS" // others may read the report
	}
	if err := o.joinThread(ctx, r, "", f.Header); err != nil {
		return nil, err
	}
	pc := &preparedMessage{row: r, blob: f.Blob}
	for _, to := range f.To {
		r.utf8 = r.utf8 || to.NeedsSMTPUTF8()
		pc.recipients = append(pc.recipients, queue.Recipient{
			Address: to.String(), Kind: "envelope", Destination: to.Domain, Notify: f.DSNOptions.notify(), Original: f.DSNOptions.OriginalRecipient,
		})
	}
	r.setReference()
	return o.newPending(ctx, pc, f.limitSubject(r), nil)
}
