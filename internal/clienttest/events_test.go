// SPDX-License-Identifier: Apache-2.0

package clienttest

import (
	"bytes"
	"time"

	"github.com/mailstead/mailstead/client"
)

func (h *fixture) events() {
	h.Helper()
	ctx := h.Context()
	a, err := h.c.Send(ctx, &client.Send{FromEmail: "alice@demo.test", To: []string{"bounced@simulator.test"}, Subject: "x", Text: "x", Metadata: map[string]int{"order": 7}})
	h.want("sending", err)
	if m := h.await(a.ID, settled); m.Status != client.Bounced {
		h.Fatalf("the simulator does not bounce: %s", raw(h.T, m))
	}
	f := client.EventFilter{Types: []string{"bounce", "delivery_status"}, MessageID: a.ID}
	var all []client.Event
	for all = collect(h, h.c.Events(ctx, f)); len(all) < 2; all = collect(h, h.c.Events(ctx, f)) {
		<-h.wake.C
	}
	kinds := map[string]bool{}
	for _, e := range all {
		kinds[e.Type] = true
		var d client.MessageData
		if e.Type == "bounce" {
			var b client.BounceData
			h.want("a bounce", e.Decode(&b))
			if d = b.MessageData; b.Type != "Permanent" || b.Category != "recipient" || b.SMTPCode != 550 || b.EnhancedCode != "5.1.1" {
				h.Errorf("the bounce is %s", e.Data)
			}
		} else {
			var s client.DeliveryStatusData
			h.want("a status", e.Decode(&s))
			if d = s.MessageData; s.Status != client.Bounced || s.Attempts != 1 {
				h.Errorf("the status is %s", e.Data)
			}
		}
		if d.ID != a.ID || d.MessageID != a.MessageID || d.Recipient != "bounced@simulator.test" || string(d.Metadata) != `{"order":7}` {
			h.Errorf("the event is %s", e.Data)
		}
	}
	if len(kinds) != 2 {
		h.Errorf("the events are %+v", all)
	}
	for e, err := range h.c.StreamEvents(ctx, f, "0") {
		if err != nil || e.ID != all[len(all)-1].ID || e.Cursor == "" || !bytes.Contains(e.Body, []byte(e.ID)) {
			h.Errorf("the stream begins with %+v, %v", e, err)
		}
		break
	}
	for e, err := range h.c.StreamEvents(ctx, client.EventFilter{Types: []string{"all"}}, "") {
		refused(h, "a wrong stream", err, 422, "validation_failed", "type unknown_value")
		if e.ID != "" {
			h.Errorf("and %+v", e)
		}
	}
	_, err = h.c.ListEvents(ctx, client.EventFilter{Types: []string{"all"}, MessageID: "x"}, client.Paging{})
	refused(h, "a bad filter", err, 422, "validation_failed", "type unknown_value", "message invalid_id")
}

// stats runs after events: those are counted.
func (h *fixture) stats() {
	h.Helper()
	to := time.Now()
	got, err := h.c.GetStats(h.Context(), client.StatsQuery{By: client.ByHour, StartsAt: to.Add(-2 * time.Hour), EndsAt: to, DomainID: h.domain})
	h.want("figures", err)
	if n := len(got.Data); n < 2 || n > 3 || got.By != client.ByHour || !got.Data[0].Period.Equal(got.StartsAt) || got.Totals.Bounced == 0 || got.Totals.BounceRate == nil {
		h.Errorf("the figures are %+v", got)
	}
	_, err = h.c.GetStats(h.Context(), client.StatsQuery{By: "year"})
	refused(h, "a bad period", err, 422, "validation_failed", "by unknown_value")
}
