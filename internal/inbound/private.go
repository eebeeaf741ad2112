// SPDX-License-Identifier: Apache-2.0

package inbound

import (
	"context"
	"slices"
	"strings"

	"github.com/mailstead/mailstead/internal/address"
	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/digest"
	"github.com/mailstead/mailstead/internal/fault"
)

// wrote reports whether the service wrote a message that another host brings, such as
// a filter, or where its recipient has it forwarded: then it has our return path. Who
// got a message of the service knows its return path, and could hide from an account
// what he sends with it. So the message must be for the same recipient and nobody
// else, or have the text of what the service wrote.
func (l *Letter) wrote(ctx context.Context, s *spooled) (bool, error) {
	local, _, _ := strings.Cut(l.from, "@")
	id, n, ok := l.in.Key.ParseReturnPath(local)
	if !ok {
		return false, nil
	}
	about, err := l.in.Outbox.Describe(ctx, db.ID(id))
	if fault.Is(err, fault.NotFound) {
		return false, nil
	}
	if err != nil || !about.Private {
		return false, err
	}
	d, err := l.in.delivery(ctx, report{message: db.ID(id), n: n})
	if err != nil || l.isFor(d.Recipient) {
		return err == nil, err
	}
	text, err := l.in.Outbox.ServiceText(ctx, db.ID(id))
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
	_, c, err := digest.Read(r, s.index)
	return err == nil && c.Text != nil && c.HTML == nil && len(c.Attachments) == 0 && strings.TrimSpace(*c.Text) == strings.TrimSpace(text), err
}

// isFor reports whether an address is the only recipient of a message, whatever
// mailboxes it leads to.
func (l *Letter) isFor(only string) bool {
	other := func(as string) bool { return address.KeyOf(as) != address.KeyOf(only) }
	return len(l.rcpts)+len(l.onward) > 0 &&
		!slices.ContainsFunc(l.rcpts, func(r rcpt) bool { return slices.ContainsFunc(r.as, other) }) &&
		!slices.ContainsFunc(l.onward, func(o onward) bool { return other(o.as) })
}
