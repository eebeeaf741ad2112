// SPDX-License-Identifier: Apache-2.0

package outbound

import (
	"bytes"
	"context"
	"slices"
	"strings"

	"github.com/mailstead/mailstead/internal/address"
	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/mailbox"
	"github.com/mailstead/mailstead/internal/message"
)

// authorizeMailboxAuthor returns fault.Denied unless the mailbox may use every address in From, and
// the one in Sender. An ambiguous author is a fault.Invalid. It returns the domain of the first
// author, which signs.
func (o *Outbox) authorizeMailboxAuthor(ctx context.Context, m mailbox.Mailbox, h message.Header) (db.ID, error) {
	authors, err := headerAuthors(h)
	if err != nil {
		return 0, err
	}
	var signs db.ID
	for i, a := range authors {
		domain, err := o.authorizeAddress(ctx, m, a)
		if err != nil {
			return 0, err
		}
		if i == 0 {
			signs = domain
		}
	}
	return signs, nil
}

// authorizeAddress returns fault.Denied unless the mailbox may send as the address, on a domain
// that its account may send from. It returns that domain.
func (o *Outbox) authorizeAddress(ctx context.Context, m mailbox.Mailbox, a address.Address) (db.ID, error) {
	ok, err := o.Mailboxes.MaySendAs(ctx, m, a)
	if err != nil {
		return 0, err
	}
	if !ok {
		return 0, senderDenied
	}
	if strings.HasSuffix(m.Address, "@"+a.Domain) {
		return m.Domain, nil // CheckMailboxSender has checked this domain
	}
	sender, err := o.Domains.SendingDomain(ctx, m.Account, a.Domain)
	return sender.Domain, err
}

// headerAuthors returns the addresses in From, at least one, followed by the address in Sender. A
// header that mail readers may interpret differently is a fault.Invalid; an invalid address is a
// fault.Denied.
func headerAuthors(h message.Header) ([]address.Address, error) {
	if bytes.IndexByte(h, 0) >= 0 {
		return nil, fault.New(fault.Invalid, "invalid_header", "The message's header has a NUL.")
	}
	from := h.Authors()
	if from.Problem != "" {
		return nil, unclearAuthorError("From", from.Problem)
	}
	list := slices.Clone(from.List)
	sender := message.Authors{}
	if senders := h.All("Sender"); len(senders) > 0 {
		values := make([][]byte, len(senders))
		for i, f := range senders {
			values[i] = f.Value
		}
		if sender = message.ParseAuthors(values); sender.Problem != "" || len(sender.List) > 1 {
			return nil, unclearAuthorError("Sender", sender.Problem)
		}
		list = append(list, sender.List...)
	}
	if len(from.List) > 1 && len(sender.List) == 0 {
		return nil, fault.New(fault.Invalid, "sender_required", "The message has several authors: add a Sender field with the one who sends it (RFC 5322, section 3.6.2).")
	}
	all := make([]address.Address, len(list))
	for i, one := range list {
		var err error
		if all[i], err = address.Parse(one.String()); err != nil {
			return nil, senderDenied
		}
	}
	return all, nil
}

// unclearAuthorError returns the fault for a From or Sender field that is not acceptable.
func unclearAuthorError(field string, doubt message.AuthorProblem) error {
	form := "write it as Name <you@example.com>, with one address, and quotation marks around a name that has other characters than letters, digits and spaces."
	switch doubt {
	case message.NoFrom, message.ManyFrom:
		return fault.New(fault.Invalid, "invalid_from", "The message must have one %s field: %s", field, form)
	case message.OtherName:
		return fault.New(fault.Denied, "sender_name", "The name in the message's %s field shows another address than the one beside it: set a name without an address in your mail program.", field)
	case message.ManyDomains:
		return fault.New(fault.Denied, "sender_not_allowed", "All addresses in From must be on the same domain.")
	}
	return fault.New(fault.Invalid, "invalid_from", "Mail readers may read the message's %s field differently: %s", field, form)
}
