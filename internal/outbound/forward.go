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

// ForwardRequest is a message that is forwarded to external addresses unchanged. It is neither
// normalized nor signed, so that its author's signatures stay valid; setContent says when it is
// re-encoded.
type ForwardRequest struct {
	Account, Domain db.ID  // account and domain that forward it; account.OperatorAccount is the host itself
	Forwarder       db.ID  // the alias or mailbox that forwards it; for role mail the account; for a returned report the domain
	RoleMail        bool   // mail to a role address, counted by quota.RoleMailConsumer
	Sender          string // MAIL FROM; "" is the null sender
	To              []address.Address
	Blob            *blob.Blob // has no row yet
	Header          message.Header
	UTF8            bool // a header holds bytes above 127
	EightBit        bool // the body holds bytes above 127
	Private         bool // only the recipient may read it
	RequireTLS      bool // required by its sender (RFC 8689)
	DSNOptions      DSNOptions
}

// consumer returns the consumer whose limits a forwarded message counts against.
func (f *ForwardRequest) consumer(r *row) quota.Consumer {
	switch {
	case f.RoleMail:
		return quota.RoleMailConsumer(f.Account)
	case r.isReturnedReport():
		return quota.ReturnedMailConsumer(f.Account)
	}
	return quota.Consumer{Account: f.Account}
}

// DSNOptions are the delivery reports that the sender of a message requested. They are forwarded
// with the message (RFC 3461 §5.2.7).
type DSNOptions struct {
	Notify            smtpclient.Notify // 0: not given, report failures
	OriginalRecipient string            // ORCPT as "rfc822;a@b", decoded
	Ret, EnvID        string
}

// notify returns the NOTIFY parameter for a forwarded message. Success is reported here, when the
// message is forwarded (RFC 3461 §5.2.7).
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

// isReturnedReport reports whether a message is a report that goes back to the sender of a
// forwarded message. It is sent even if the account was suspended or lost the domain meanwhile,
// because the server accepted responsibility for that mail (RFC 5321 §6.1).
func (r *row) isReturnedReport() bool {
	return r.sender == "" && r.forwarder != 0 && r.forwarder == r.domain
}

// mayBeUnsigned reports whether a message may be sent without a signature or seal if its domain is
// lost. This holds for returned reports and for what the host itself forwards.
func (r *row) mayBeUnsigned() bool {
	return r.isReturnedReport() || r.account == account.OperatorAccount
}

// PrepareForward prepares a forwarded message. It isn't API mail: its outcome suppresses nobody.
// Its sender, if any, is notified only of failure unless it requested otherwise.
func (o *Outbox) PrepareForward(ctx context.Context, f ForwardRequest) (*PendingMessage, error) {
	now := o.Now().UTC()
	r := &row{
		id: o.DB.NewID(), account: f.Account, domain: f.Domain, forwarder: f.Forwarder, sender: f.Sender, metadata: "{}",
		from: db.CleanText(strings.TrimSpace(f.Header.Decoded("From")), maxSubject), subject: db.CleanText(f.Header.Decoded("Subject"), maxSubject),
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
		r.ret = "HDRS" // other people may read the report
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
	return o.newPending(ctx, pc, f.consumer(r), nil)
}
