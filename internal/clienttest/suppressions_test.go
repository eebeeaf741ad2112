// SPDX-License-Identifier: Apache-2.0

package clienttest

import (
	"io"
	"strings"

	"github.com/mailstead/mailstead/client"
)

func (h *fixture) suppressions() {
	h.Helper()
	ctx := h.Context()
	e, err := h.c.AddSuppression(ctx, "Gone@Example.org", "")
	h.want("adding", err)
	if e.Email != "gone@example.org" || e.Reason != client.Manual || e.Message != "" || e.Simulated {
		h.Errorf("added %+v", e)
	}
	_, err = h.c.AddSuppression(ctx, "x", "because")
	refused(h, "no address", err, 422, "validation_failed", "reason unknown_value", "email invalid_address")
	many, err := h.c.AddSuppressions(ctx, []string{"gone@example.org", "left@example.org"}, client.Unsubscribed)
	if err != nil || len(many) != 2 || many[1].Reason != client.Unsubscribed {
		h.Errorf("added %+v, %v", many, err)
	}
	if got, err := h.c.GetSuppression(ctx, "gone@example.org"); err != nil || got.ID != e.ID {
		h.Errorf("shown as %+v, %v", got, err)
	}
	file := strings.NewReader("email,reason\nimported@example.org,bounce\nnonsense,bounce\n")
	in, err := h.c.ImportSuppressions(ctx, file, client.Complaint)
	if err != nil || in.Added != 1 || in.Rejected != 1 || len(in.Errors) != 1 || in.Errors[0].Line != 3 {
		h.Errorf("imported %+v, %v", in, err)
	}
	in, err = h.c.ImportSuppressions(ctx, file, "") // it was reset to its start
	if err != nil || in.Added != 0 || in.Existing != 1 {
		h.Errorf("imported once more: %+v, %v", in, err)
	}
	_, err = h.c.ImportSuppressions(ctx, file, "because")
	refused(h, "an unknown reason", err, 422, "validation_failed", "reason unknown_value")
	var out strings.Builder
	h.want("exporting", h.c.ExportSuppressions(ctx, &out))
	if !strings.Contains(out.String(), "imported@example.org") || !strings.Contains(out.String(), "left@example.org") {
		h.Errorf("exported %s", out.String())
	}
	boxes := collect(h, h.c.Mailboxes(ctx, client.MailboxFilter{}))
	for what, export := range map[string]func(io.Writer) error{
		"id,mailbox_id,status": func(to io.Writer) error {
			return h.c.ExportMessages(ctx, client.MessageFilter{}, client.CSV, to)
		},
		"id,type,timestamp": func(to io.Writer) error {
			return h.c.ExportEvents(ctx, client.EventFilter{Types: []string{client.EventBounce}}, client.CSV, to)
		},
		"id,mailbox_id,thread_id": func(to io.Writer) error {
			return h.c.ExportMailboxMessages(ctx, boxes[0].ID, client.MailFilter{}, client.CSV, to)
		},
		`{"period":`: func(to io.Writer) error { return h.c.ExportStats(ctx, client.StatsQuery{}, "", to) },
	} {
		var file strings.Builder
		if err := export(&file); err != nil || !strings.HasPrefix(file.String(), what) {
			h.Errorf("%s: %v %s", what, err, file.String())
		}
	}
	if all := collect(h, h.c.Suppressions(ctx, client.SuppressionFilter{Reasons: []client.Reason{client.Bounce}, Email: "imported@example.org"})); len(all) != 1 {
		h.Errorf("found %+v", all)
	}
	a, err := h.c.Send(ctx, &client.Send{FromEmail: "alice@demo.test", To: []string{"gone@example.org"}, Subject: "x", Text: "x"})
	if err != nil || a.Status != client.Suppressed || a.Recipients[0].Reason != "manual" {
		h.Errorf("sent as %+v, %v", a, err)
	}
	a, err = h.c.Send(ctx, &client.Send{FromEmail: "alice@demo.test", To: []string{"x@simulator.test"}, Subject: "x", Text: "x", Unsubscribe: &client.Unsubscribe{}})
	if err != nil || a.Status != client.Queued {
		h.Errorf("sent as %+v, %v", a, err)
	}
	_, err = h.c.Send(ctx, &client.Send{FromEmail: "alice@demo.test", To: []string{"x@simulator.test"}, Subject: "x", Text: "x",
		Unsubscribe: &client.Unsubscribe{URL: "http://example.com", Mailto: "x"}})
	refused(h, "a bad link", err, 422, "validation_failed", "unsubscribe.url invalid_url", "unsubscribe.mailto invalid_address")
	h.want("deleting", h.c.DeleteSuppression(ctx, e.ID))
	_, err = h.c.GetSuppression(ctx, e.ID)
	refused(h, "when gone", err, 404, "not_found")
}
