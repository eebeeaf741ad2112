// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"bytes"
	"fmt"

	"github.com/mailstead/mailstead/internal/address"
	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/inbound"
	"github.com/mailstead/mailstead/internal/mailbox"
	"github.com/mailstead/mailstead/internal/message"
)

// receive takes a message in as from outside, in the sandbox alone, and goes on
// to where it lies.
func (d *Dashboard) receive(v *visit) (done, error) {
	if d.Captured == nil {
		return done{}, notFound()
	}
	var bad fault.Fields
	named := func(field string) address.Named {
		n, err := address.ParseNamed(v.text(field))
		if err != nil {
			bad.Add(field, "invalid_address", "This must be an address such as you@example.com or Name <you@example.com>.")
		}
		return n
	}
	from, to := named("from"), named("to")
	if err := bad.Err(); err != nil {
		return done{}, err
	}
	shown := func(n address.Named) message.Address {
		return message.Address{Name: n.Name, Local: n.Address.LocalText(), Domain: n.Address.Domain}
	}
	now := d.Now()
	draft := &message.Draft{
		Date: now, MessageID: fmt.Sprintf("<%d.sandbox@%s>", now.UnixNano(), d.Host), From: shown(from), To: []message.Address{shown(to)},
		Subject: v.text("subject"), Text: v.form.Get("text"),
	}
	var mail bytes.Buffer // no longer than a form may be
	if _, err := message.Compose(&mail, draft); err != nil {
		return done{}, err
	}
	got, err := d.Inbound.Simulate(v.ctx, inbound.Simulated{
		From: &from.Address, To: []address.Address{to.Address}, Size: int64(mail.Len()), Body: &mail,
		Received: message.Received{Helo: "sandbox", By: d.Host, With: "HTTP"},
		May:      func(r mailbox.Recipient) bool { return r.Account == v.in.Account },
	})
	if err != nil {
		return done{}, err
	}
	if len(got.Recipients) == 1 && got.Code == 250 {
		to := got.Recipients[0]
		did := done{To: "/messages?direction=received", Told: "Received a message of the sandbox."}
		if to.Mailbox != 0 {
			did.To = "/received/" + to.Mailbox.String() + "/" + to.Message.String()
		}
		return did, nil
	}
	told := got.Reply
	if len(got.Recipients) == 1 && got.Recipients[0].Code != 250 {
		told = got.Recipients[0].Reply
	}
	bad.Add("to", "refused", "Who sends this is told: %d %s %s", told.Code, told.Enhanced, told.Text)
	return done{}, bad.Err()
}
