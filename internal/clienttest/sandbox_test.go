// SPDX-License-Identifier: Apache-2.0

package clienttest

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/mailstead/mailstead/client"
	"github.com/mailstead/mailstead/internal/server/servertest"
)

// sandbox tests captured messages, and reports about them.
func (h *fixture) sandbox() {
	h.Helper()
	ctx := h.Context()
	h.want("clearing", h.c.ClearOutbox(ctx))
	sent, err := h.c.Send(ctx, &client.Send{
		FromEmail: "alice@demo.test", To: []string{"gone@elsewhere.example", "bob@demo.test"}, Subject: "Captured", Text: "Hello", HTML: "<p>Hello",
		Attachments: []client.Attachment{client.Bytes("a.txt", []byte("text"))},
	})
	h.want("sending", err)
	h.await(sent.ID, settled)
	all := collect(h, h.c.Outbox(ctx))
	if len(all) != 1 {
		h.Fatalf("captured %s", raw(h.T, all))
	}
	c := all[0]
	if c.OutboundID != sent.ID || c.Subject != "Captured" || c.MessageID != sent.MessageID || !slices.Equal(c.Envelope.RcptTo, []string{"gone@elsewhere.example"}) ||
		!strings.HasPrefix(c.Envelope.MailFrom, "b-") || c.Text != nil || c.CapturedAt.IsZero() {
		h.Errorf("captured %s", raw(h.T, c))
	}
	one, err := h.c.GetOutbox(ctx, c.ID)
	h.want("showing it", err)
	if one.Text == nil || *one.Text != "Hello" || one.HTML == nil || len(one.Attachments) != 1 || one.Attachments[0].URL != "" || one.Headers[0].Name != "DKIM-Signature" {
		h.Errorf("it is %s", raw(h.T, one))
	}
	var b bytes.Buffer
	h.want("reading its bytes", h.c.GetOutboxRaw(ctx, c.ID, &b))
	if int64(b.Len()) != c.Size || !strings.HasPrefix(b.String(), "DKIM-Signature: ") {
		h.Errorf("its bytes are\n%.200s", b.String())
	}
	_, err = h.c.GetOutbox(ctx, nobody)
	refused(h, "what was never captured", err, 404, "not_found")

	// A report to the return path bounces the delivery, as if from outside.
	out, err := h.c.SimulateInbound(ctx, &client.SimulatedMessage{
		MailFrom: new(""), RcptTo: []string{c.Envelope.MailFrom},
		Raw: []byte(fmt.Sprintf("From: mailer-daemon@elsewhere.example\nContent-Type: multipart/report; report-type=delivery-status; boundary=b\n\n"+
			"--b\n\nsorry\n--b\nContent-Type: message/delivery-status\n\nReporting-MTA: dns; mx.elsewhere.example\n\n"+
			"Final-Recipient: rfc822; %s\nAction: failed\nStatus: 5.1.1\nDiagnostic-Code: smtp; 550 5.1.1 nobody\n--b--\n", "gone@elsewhere.example")),
	})
	h.want("reporting", err)
	if !out.Accepted || out.Recipients[0].ID != "" {
		h.Errorf("the report: %+v", out)
	}
	m := h.await(sent.ID, func(m *client.Message) bool { return m.Recipients[0].Status == "bounced" })
	if m.Recipients[1].Status != "delivered" {
		h.Errorf("it is %s", raw(h.T, m.Recipients))
	}
	h.want("allowing the address again", h.c.DeleteSuppression(ctx, "gone@elsewhere.example"))

	// A message from this service names the sent message.
	for _, got := range collect(h, h.c.MailboxMessages(ctx, h.boxes[1], client.MailFilter{Subject: "captured"})) {
		if got.OutboundID != sent.ID {
			h.Errorf("bob has %s", raw(h.T, got))
		}
	}
	h.want("clearing", h.c.ClearOutbox(ctx))
	if all := collect(h, h.c.Outbox(ctx)); len(all) != 0 {
		h.Errorf("after clearing there is %s", raw(h.T, all))
	}
	_, err = h.c.GetOutbox(ctx, c.ID)
	refused(h, "what was cleared", err, 404, "not_found")
}

// TestSimulateRefusals tests SMTP rejections, and requests that no SMTP client can make.
func TestSimulateRefusals(t *testing.T) {
	servertest.Each(t, func(t *testing.T, s *servertest.Server) {
		h := newFixture(t, s)
		ctx := t.Context()
		tiny := 1
		_, err := h.c.UpdateMailbox(ctx, h.boxes[1], client.MailboxChange{QuotaMB: &tiny})
		h.want("shrinking bob", err)
		large := []client.Attachment{client.Bytes("large", bytes.Repeat([]byte("0123456789abcdef"), 100_000))}
		for _, c := range []struct {
			what string
			s    client.SimulatedMessage
			want string
		}{
			{"nobody here", client.SimulatedMessage{To: []string{"nobody@demo.test", "x@elsewhere.example"}}, "554 5.5.1, 550 5.1.1, 550 5.7.1"},
			{"one of two", client.SimulatedMessage{To: []string{"nobody@demo.test", "bob@demo.test"}}, "250 2.0.0, 550 5.1.1, 250 2.1.5"},
			{"two of one", client.SimulatedMessage{To: []string{"bob+a@demo.test", "Bob <bob+b@demo.test>", "bob+a@demo.test"}}, "250 2.0.0, 250 2.1.5, 250 2.1.5"},
			{"a forged return path", client.SimulatedMessage{RcptTo: []string{"b-aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa@demo.test"}}, "554 5.5.1, 550 5.1.1"},
			{"a bare line feed", client.SimulatedMessage{RcptTo: []string{"bob@demo.test"}, Raw: []byte("Subject: x\r\n\r\na\nb\r\n")}, "550 5.5.2, 250 2.1.5"},
			{"a loop", client.SimulatedMessage{RcptTo: []string{"bob@demo.test"}, Raw: []byte("Delivered-To: bob@demo.test\r\n\r\n")}, "554 5.4.6, 250 2.1.5"},
			{"up to the quota", client.SimulatedMessage{To: []string{"bob@demo.test"}, Attachments: large}, "250 2.0.0, 250 2.1.5"},
			{"over quota", client.SimulatedMessage{To: []string{"bob@demo.test"}}, "554 5.5.1, 452 4.2.2"},
		} {
			if c.s.Raw == nil {
				c.s.From = "ann@elsewhere.example"
			}
			out, err := h.c.SimulateInbound(ctx, &c.s)
			h.want(c.what, err)
			got := fmt.Sprintf("%d %s", out.SMTPCode, out.EnhancedCode)
			for _, r := range out.Recipients {
				got += fmt.Sprintf(", %d %s", r.SMTPCode, r.EnhancedCode)
			}
			if got != c.want || out.Accepted != (out.SMTPCode == 250) || out.Diagnostic == "" {
				t.Errorf("%s: %s (%s), want %s", c.what, got, out.Diagnostic, c.want)
			}
		}
		for _, c := range []struct {
			what   string
			s      client.SimulatedMessage
			faults []string
		}{
			{"nothing", client.SimulatedMessage{}, []string{"from invalid_address", "rcpt_to required"}},
			{"no recipient", client.SimulatedMessage{From: "ann@elsewhere.example"}, []string{"rcpt_to required"}},
			{"bad addresses", client.SimulatedMessage{From: "ann", To: []string{"bob@demo.test", "b"}, RcptTo: []string{"@"}, MailFrom: new("x")},
				[]string{"from invalid_address", "to[1] invalid_address", "mail_from invalid_address", "rcpt_to[0] invalid_address"}},
			{"fields beside raw", client.SimulatedMessage{Raw: []byte("Subject: x\r\n\r\n"), Text: "y", Subject: "z"}, []string{"subject not_with_raw", "text not_with_raw", "rcpt_to required"}},
			{"headers", client.SimulatedMessage{From: "ann@elsewhere.example", To: []string{"bob@demo.test"}, Headers: map[string]string{"X-A": "b\r\nX-C: d", "From": "x", "a b": "c"}},
				[]string{"headers name", "headers.X-A control_character", "headers name"}},
			{"check_results", client.SimulatedMessage{From: "ann@elsewhere.example", To: []string{"bob@demo.test"}, CheckResults: &client.CheckResults{SPF: "yes", Spam: "pass"}},
				[]string{"check_results.spf unknown_value", "check_results.spam unknown_value"}},
		} {
			_, err := h.c.SimulateInbound(ctx, &c.s)
			refused(t, c.what, err, 422, "validation_failed", c.faults...)
		}
	})
}
