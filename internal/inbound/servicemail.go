// SPDX-License-Identifier: Apache-2.0

package inbound

import (
	"context"
	"slices"
	"strings"

	"github.com/mailstead/mailstead/internal/address"
	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/summary"
)

// isReturnedServiceMail reports whether another host returned private mail of the service, such as
// a filter or a forward of its recipient. That mail has our return path. A recipient knows the
// return path and could use it to hide other mail from an account. So the message must have the
// same single recipient, or the text of the service's message.
func (l *Transaction) isReturnedServiceMail(ctx context.Context, s *spooledMessage) (bool, error) {
	local, _, _ := strings.Cut(l.from, "@")
	id, n, ok := l.service.Key.ParseReturnPath(local)
	if !ok {
		return false, nil
	}
	about, err := l.service.Outbox.MessageInfo(ctx, db.ID(id))
	if fault.Is(err, fault.NotFound) {
		return false, nil
	}
	if err != nil || !about.Private {
		return false, err
	}
	d, err := l.service.reportedDelivery(ctx, returnPath{message: db.ID(id), n: n})
	if err != nil || l.isOnlyFor(d.Recipient) {
		return err == nil, err
	}
	text, err := l.service.Outbox.ServiceMailText(ctx, db.ID(id))
	if fault.Is(err, fault.NotFound) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	r, err := s.blob.Open(ctx)
	if err != nil {
		return false, err
	}
	defer r.Close() //nolint:errcheck // only read
	_, c, err := summary.Read(r, s.index)
	return err == nil && c.Text != nil && c.HTML == nil && len(c.Attachments) == 0 && strings.TrimSpace(*c.Text) == strings.TrimSpace(text), err
}

// isOnlyFor reports whether an address is the only recipient of a message, regardless of the
// mailboxes behind it.
func (l *Transaction) isOnlyFor(only string) bool {
	other := func(as string) bool { return address.KeyOf(as) != address.KeyOf(only) }
	return len(l.recipients)+len(l.forwards) > 0 &&
		!slices.ContainsFunc(l.recipients, func(r recipient) bool { return slices.ContainsFunc(r.addresses, other) }) &&
		!slices.ContainsFunc(l.forwards, func(o forward) bool { return other(o.address) })
}
