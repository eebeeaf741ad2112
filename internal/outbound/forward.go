// SPDX-License-Identifier: Apache-2.0

package outbound

import (
	"context"
	"strings"

	"github.com/mailstead/mailstead/internal/account"
	"github.com/mailstead/mailstead/internal/address"
	"github.com/mailstead/mailstead/internal/blob"
	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/limit"
	"github.com/mailstead/mailstead/internal/message"
	"github.com/mailstead/mailstead/internal/queue"
	"github.com/mailstead/mailstead/internal/smtpclient"
)

// Forwarded is a message that goes on to addresses elsewhere as it came: it is
// neither mended nor signed, so that its author's signatures still hold; form says what
// of it is re-encoded.
type Forwarded struct {
	Account, Domain db.ID  // who forwards it, and in whose name; account.Operators is the host
	By              db.ID  // the alias or the mailbox that leads there; of role mail the account; the domain, for a report that goes back
	Role            bool   // it is mail to a role address, which counts by limit.RoleMail
	Sender          string // MAIL FROM; "" is the null sender
	To              []address.Address
	Blob            *blob.Blob // has no row yet
	Header          message.Header
	UTF8            bool // a header holds bytes above 127
	EightBit        bool // the body holds such
	Private         bool // only its recipient reads it
	RequireTLS      bool // as its sender demanded (RFC 8689)
	Asked           Asked
}

// user is whom a forwarded message counts for.
func (f *Forwarded) user(r *row) limit.Who {
	switch {
	case f.Role:
		return limit.RoleMail(f.Account)
	case r.returns():
		return limit.ReturnedMail(f.Account)
	}
	return limit.Who{Account: f.Account}
}

// Asked is what the sender of a message asked to be told of it, which goes along with
// the message (RFC 3461 §5.2.7).
type Asked struct {
	Notify     smtpclient.Notify // 0: nothing, which is to be told of failure
	Original   string            // ORCPT as "rfc822;a@b", decoded
	Ret, EnvID string
}

// notify is NOTIFY of what is forwarded: success is told of what becomes of the message
// here (RFC 3461 §5.2.7).
func (a Asked) notify() smtpclient.Notify {
	const goesOn = smtpclient.NotifyFailure | smtpclient.NotifyDelay
	switch {
	case a.Notify == 0:
		return smtpclient.NotifyFailure
	case a.Notify&goesOn == 0:
		return smtpclient.NotifyNever
	}
	return a.Notify & goesOn
}

// returns reports whether a message is a report on its way back to who sent what was
// forwarded. It goes there though the account is suspended meanwhile, or has lost the
// domain: its sender was told that the mail is in good hands (RFC 5321 §6.1).
func (r *row) returns() bool { return r.sender == "" && r.forwarded != 0 && r.forwarded == r.domain }

// nobodys reports whether a message goes out without a domain's signature or seal
// where there is none: a report on its way back, and what the host itself forwards.
func (r *row) nobodys() bool { return r.returns() || r.account == account.Operators }

// Forward makes a message that is forwarded ready. It is no API mail: nobody is
// suppressed by what becomes of it. Its sender, if there is one, is told of
// failure alone, unless it asked for something else.
func (o *Outbox) Forward(ctx context.Context, f Forwarded) (*Ready, error) {
	now := o.Now().UTC()
	r := &row{
		id: o.DB.NewID(), account: f.Account, domain: f.Domain, forwarded: f.By, sender: f.Sender, metadata: "{}",
		from: clip(strings.TrimSpace(f.Header.Decoded("From")), maxSubject), subject: clip(f.Header.Decoded("Subject"), maxSubject),
		messageID: f.Header.MessageID(), blob: f.Blob.ID, size: f.Blob.Size, utf8: f.UTF8, eightBit: f.EightBit, private: f.Private,
		created: now, expires: now.Add(ExpirySubmission), requireTLS: wishOfTLS(f.RequireTLS, f.Header),
		ret: f.Asked.Ret, envid: f.Asked.EnvID,
	}
	if !r.returns() {
		if err := o.active(ctx, f.Account); err != nil {
			return nil, err
		}
	}
	if f.Private {
		r.ret = "HDRS" // others may read the report
	}
	if err := o.join(ctx, r, "", f.Header); err != nil {
		return nil, err
	}
	pc := &parcel{row: r, blob: f.Blob}
	for _, to := range f.To {
		r.utf8 = r.utf8 || to.IsUTF8()
		pc.to = append(pc.to, queue.Recipient{
			Address: to.String(), Kind: "envelope", Destination: to.Domain, Notify: f.Asked.notify(), Original: f.Asked.Original,
		})
	}
	r.refer()
	return o.ready(ctx, pc, f.user(r), nil)
}
