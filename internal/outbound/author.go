// SPDX-License-Identifier: Apache-2.0

package outbound

import (
	"bytes"

	"github.com/mailstead/mailstead/internal/address"
	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/mailbox"
	"github.com/mailstead/mailstead/internal/message"
)

// checkAuthor returns fault.Denied unless every address in From and Sender is
// the mailbox's own. What other programs may read differently is a
// fault.Invalid.
func (o *Outbox) checkAuthor(m mailbox.Mailbox, h message.Header) error {
	authors, err := authorsOf(h)
	if err != nil {
		return err
	}
	for _, a := range authors {
		if !o.Mailboxes.MayUse(m, a) {
			return senderDenied
		}
	}
	return nil
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
