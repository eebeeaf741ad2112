// SPDX-License-Identifier: Apache-2.0

package outbound

import (
	"bytes"
	"context"
	"strings"

	"github.com/mailstead/mailstead/internal/address"
	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/mailbox"
	"github.com/mailstead/mailstead/internal/message"
)

// checkAuthor returns fault.Denied unless the mailbox may use every address in
// From and Sender. What other programs may read differently is a
// fault.Invalid. It returns the domain of the first author, which signs.
func (o *Outbox) checkAuthor(ctx context.Context, m mailbox.Mailbox, h message.Header) (db.ID, error) {
	authors, err := authorsOf(h)
	if err != nil {
		return 0, err
	}
	var signs db.ID
	for i, a := range authors {
		domain, err := o.mayUse(ctx, m, a)
		if err != nil {
			return 0, err
		}
		if i == 0 {
			signs = domain
		}
	}
	return signs, nil
}

// mayUse returns fault.Denied unless the mailbox may send as an address, on a
// domain that its account may send from: it returns that domain.
func (o *Outbox) mayUse(ctx context.Context, m mailbox.Mailbox, a address.Address) (db.ID, error) {
	ok, err := o.Mailboxes.MayUse(ctx, m, a)
	if err != nil {
		return 0, err
	}
	if !ok {
		return 0, senderDenied
	}
	if strings.HasSuffix(m.Address, "@"+a.Domain) {
		return m.Domain, nil // MaySubmit asked
	}
	sender, err := o.Domains.Sender(ctx, m.Account, a.Domain)
	return sender.Domain, err
}

// authorsOf returns the addresses in From and Sender, one at least, that of
// From first. What other programs may read differently is a fault.Invalid; an
// address that can't be anyone's is a fault.Denied.
func authorsOf(h message.Header) ([]address.Address, error) {
	if h.Count("From") != 1 || h.Count("Sender") > 1 {
		return nil, fault.New(fault.Invalid, "invalid_from", "The message must have one From field.")
	}
	if bytes.IndexByte(h, 0) >= 0 {
		return nil, fault.New(fault.Invalid, "invalid_header", "The message's header has a NUL.")
	}
	for _, f := range append(h.All("From"), h.All("Sender")...) {
		if message.AmbiguousAddresses(f.Value) {
			return nil, fault.New(fault.Invalid, "invalid_from", "The message's From or Sender field is not a list of addresses (RFC 5322, section 3.4).")
		}
	}
	named := append(h.Addresses("From"), h.Addresses("Sender")...)
	if len(named) == 0 {
		return nil, fault.New(fault.Invalid, "invalid_from", "The message's From field has no address.")
	}
	authors := make([]address.Address, len(named))
	for i, one := range named {
		var err error
		if authors[i], err = address.Parse(one.Local + "@" + one.Domain); err != nil {
			return nil, senderDenied
		}
	}
	return authors, nil
}
