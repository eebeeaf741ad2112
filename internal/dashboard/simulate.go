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

// simulateInbound receives a simulated message in the sandbox, and redirects to it.
func (d *Dashboard) simulateInbound(v *requestContext) (actionResult, error) {
	if d.SandboxOutbox == nil {
		return actionResult{}, notFound()
	}
	var bad fault.FieldErrors
	named := func(field string) address.NameAddr {
		n, err := address.ParseNameAddr(v.formText(field))
		if err != nil {
			bad.Add(field, "invalid_address", "This must be an address such as you@example.com or Name <you@example.com>.")
		}
		return n
	}
	from, to := named("from"), named("to")
	if err := bad.Err(); err != nil {
		return actionResult{}, err
	}
	shown := func(n address.NameAddr) message.Address {
		return message.Address{Name: n.Name, Local: n.Address.UnquotedLocal(), Domain: n.Address.Domain}
	}
	now := d.Now()
	draft := &message.Draft{
		Date: now, MessageID: fmt.Sprintf("<%d.sandbox@%s>", now.UnixNano(), d.Host), From: shown(from), To: []message.Address{shown(to)},
		Subject: v.formText("subject"), Text: v.form.Get("text"),
	}
	var mail bytes.Buffer // no longer than the form limit
	if _, err := message.Compose(&mail, draft); err != nil {
		return actionResult{}, err
	}
	got, err := d.Inbound.Simulate(v.ctx, inbound.SimulatedMessage{
		From: &from.Address, To: []address.Address{to.Address}, Size: int64(mail.Len()), Body: &mail,
		Received: message.ReceivedField{Helo: "sandbox", By: d.Host, With: "HTTP"},
		Allow:    func(r mailbox.Recipient) bool { return r.Account == v.session.Account },
	})
	if err != nil {
		return actionResult{}, err
	}
	if len(got.Recipients) == 1 && got.Code == 250 {
		to := got.Recipients[0]
		did := actionResult{RedirectTo: "/messages?direction=received", Summary: "Received a message of the sandbox."}
		if to.Mailbox != 0 {
			did.RedirectTo = "/received/" + to.Mailbox.String() + "/" + to.Message.String()
		}
		return did, nil
	}
	told := got.Reply
	if len(got.Recipients) == 1 && got.Recipients[0].Code != 250 {
		told = got.Recipients[0].Reply
	}
	bad.Add("to", "refused", "Who sends this is told: %d %s %s", told.Code, told.Enhanced, told.Text)
	return actionResult{}, bad.Err()
}
