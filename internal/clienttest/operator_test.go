// SPDX-License-Identifier: Apache-2.0

package clienttest

import (
	"net/http"
	"time"

	"github.com/mailstead/mailstead/client"
	"github.com/mailstead/mailstead/internal/account"
	"github.com/mailstead/mailstead/internal/notify"
)

// operator tests the operator operations, over the same path.
func (h *fixture) operator() {
	h.Helper()
	ctx := h.Context()
	_, key, err := h.s.Accounts.CreateKey(ctx, account.OperatorAccount, account.KeyParams{Name: "operator"})
	h.want("making an operator's key", err)
	c, err := client.New(h.s.Dev.BaseURL, key, client.WithHTTPClient(&http.Client{Transport: h.path}))
	h.want("a client", err)

	_, err = h.c.ListQueueHolds(ctx)
	refused(h, "a customer", err, 403, "missing_scope")
	_, err = h.c.HoldQueue(ctx, client.QueueRequest{All: true})
	refused(h, "a customer's order", err, 403, "missing_scope")
	_, err = c.ListDomains(ctx, client.Paging{})
	refused(h, "an operator as a customer", err, 403, "missing_scope")
	_, err = h.c.CreateAPIKey(ctx, client.NewAPIKey{Name: "x", Scopes: []string{"operator"}})
	refused(h, "a customer who makes an operator", err, 403, "scope_exceeded")

	to := client.QueueFilter{Destination: "held.example.net"}
	r, err := c.HoldQueue(ctx, client.QueueRequest{QueueFilter: to, Reason: "they asked"})
	if err != nil || *r != (client.QueueResult{}) {
		h.Errorf("holding: %+v, %v", r, err)
	}
	holds, err := c.ListQueueHolds(ctx)
	if err != nil || len(holds) != 1 || holds[0].Kind != "destination" || holds[0].Destination != "held.example.net" || holds[0].Detail != "they asked" || holds[0].CreatedAt.IsZero() {
		h.Errorf("holds %+v, %v", holds, err)
	}
	h.untilHeld("x@held.example.net")
	a, err := h.c.Send(ctx, &client.Send{FromEmail: "alice@demo.test", To: []string{"x@held.example.net", "y@held.example.net"}, Subject: "Held", Text: "text"})
	h.want("sending", err)
	all := collect(h, c.QueueDeliveries(ctx, client.QueueFilter{Destination: "HELD.example.net.", Account: "you@demo.test", Sender: "demo.test", Held: new(true), Message: a.ID, Status: "queued"}))
	if len(all) != 2 || all[0].Message != a.ID || all[0].Recipient != "x@held.example.net" || !all[0].Held || all[0].Subject != "Held" || all[0].NextAttemptAt != nil || all[0].Size == 0 {
		h.Errorf("held %+v", all)
	}
	if all := collect(h, c.QueueDeliveries(ctx, client.QueueFilter{Destination: "held.example.net", OlderThan: time.Hour})); len(all) != 0 {
		h.Errorf("old %+v", all)
	}
	found := false
	for _, d := range collect(h, c.QueueDestinations(ctx)) {
		if found = found || d.Destination == "held.example.net"; found && d.Hold == nil && d.Destination == "held.example.net" {
			h.Errorf("the destination is %+v", d)
		}
	}
	if !found {
		h.Error("the destination is not listed")
	}
	m, err := c.GetQueueMessage(ctx, a.ID)
	if err != nil || m.AccountID != all[0].AccountID || len(m.Recipients) != 2 || !m.Recipients[0].Held || m.Status != "queued" {
		h.Errorf("shown %+v, %v", m, err)
	}
	if own, err := h.c.GetMessage(ctx, a.ID); err != nil || !own.Recipients[0].Held {
		h.Errorf("its account sees %+v, %v", own, err)
	}
	r, err = c.DropQueue(ctx, client.QueueRequest{QueueFilter: client.QueueFilter{Message: a.ID}, DryRun: true})
	if err != nil || r.Matched != 2 || r.Changed != 0 {
		h.Errorf("counting: %+v, %v", r, err)
	}
	r, err = c.DropQueue(ctx, client.QueueRequest{QueueFilter: client.QueueFilter{Message: a.ID}, Reason: "a test", Wait: time.Second})
	if err != nil || r.Changed != 2 {
		h.Errorf("dropping: %+v, %v", r, err)
	}
	dropped := h.await(a.ID, settled)
	if dropped.Status != "failed" || dropped.Recipients[1].Diagnostic != "Dropped by the operator of the service: a test" || dropped.Recipients[1].Held {
		h.Errorf("dropped: %+v", dropped)
	}
	r, err = c.ReleaseQueue(ctx, client.QueueRequest{QueueFilter: to})
	if err != nil || r.HasMore || r.NextCursor != "" {
		h.Errorf("releasing: %+v, %v", r, err)
	}
	r, err = c.RetryQueue(ctx, client.QueueRequest{QueueFilter: client.QueueFilter{Message: a.ID}})
	if err != nil || r.Changed != 2 {
		h.Errorf("retrying: %+v, %v", r, err)
	}
	if m := h.await(a.ID, settled); m.Status != "delivered" {
		h.Errorf("retried: %+v", m)
	}

	h.hostDNS(c)
	h.accountLimits(c, all[0].AccountID)
	h.accounts(c)
	_, err = c.DropQueue(ctx, client.QueueRequest{})
	refused(h, "nothing chosen", err, 422, "validation_failed", "all required")
	_, err = c.DropQueue(ctx, client.QueueRequest{QueueFilter: client.QueueFilter{Message: "x", Account: "nobody@x.test", Destination: "a b", Sender: "-"}, After: "x"})
	refused(h, "all at once", err, 422, "validation_failed", "message invalid_id", "account unknown_account", "destination invalid_domain",
		"sender invalid_sender", "after invalid_cursor")
	_, err = c.DropQueue(ctx, client.QueueRequest{QueueFilter: client.QueueFilter{Status: "failed", OlderThan: -time.Second}, Wait: time.Minute})
	refused(h, "all rules", err, 422, "validation_failed", "status unknown_value", "older_than out_of_range", "wait out_of_range", "all required")
	_, err = c.ListQueueDeliveries(ctx, client.QueueFilter{Status: "failed"}, client.Paging{After: "x"})
	refused(h, "a wrong state", err, 422, "validation_failed", "status unknown_value", "after invalid_cursor")
	_, err = c.ListQueueDeliveries(ctx, client.QueueFilter{}, client.Paging{After: "eyJwIjowLCJkIjoiXHUwMDAwIn0"}) // {"p":0,"d":"\u0000"}
	refused(h, "a made-up cursor", err, 422, "validation_failed", "after invalid_cursor")
	_, err = c.ListQueueDestinations(ctx, "a b", client.Paging{})
	refused(h, "a wrong destination", err, 422, "validation_failed", "destination invalid_domain")
	_, err = c.GetQueueMessage(ctx, nobody)
	refused(h, "no message", err, 404, "not_found")
}

// untilHeld returns once the node knows of a hold.
func (h *fixture) untilHeld(recipient string) {
	h.Helper()
	ctx := h.Context()
	for {
		a, err := h.c.Send(ctx, &client.Send{FromEmail: "alice@demo.test", To: []string{recipient}, Subject: "Until", Text: "text"})
		h.want("sending", err)
		m := h.await(a.ID, func(m *client.Message) bool { return m.Status.Final() || m.Recipients[0].Held })
		if m.Recipients[0].Held {
			return
		}
		h.s.Hub.Wake(notify.Key{Kind: notify.Hold})
	}
}

// hostDNS checks the service's own records, which the sandbox publishes.
func (h *fixture) hostDNS(c *client.Client) {
	h.Helper()
	_, err := h.c.GetHostDNS(h.Context())
	refused(h, "a customer", err, 403, "missing_scope")
	d, err := c.GetHostDNS(h.Context())
	if err != nil || d.Host != h.s.Config.Host || len(d.Records) == 0 || d.Failed != 0 {
		h.Fatalf("%+v, %v", d, err)
	}
	if r := d.Records[0]; r.Kind != "ADDRESS" || r.Type != "A" || r.Name != d.Host || r.Value != "127.0.0.1" || !r.Required || r.Status != "verified" || r.Note == "" || r.LastCheckedAt == nil {
		h.Errorf("%+v", r)
	}
}
