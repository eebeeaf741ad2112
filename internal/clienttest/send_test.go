// SPDX-License-Identifier: Apache-2.0

package clienttest

import (
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/mailstead/mailstead/client"
)

func (h *fixture) sending() {
	h.Helper()
	ctx := h.Context()
	const metadata = `{"n":12345678901234567890,"s":"<b>"}`
	a, err := h.c.Send(ctx, &client.Send{
		FromEmail: "alice@demo.test", FromName: "Alice", To: []string{"Bob <bob@demo.test>"}, Cc: []string{"delivered@simulator.test"}, Bcc: []string{"alice@demo.test"},
		ReplyTo: "support@demo.test", Subject: "<Grüße>", Text: "Hello", HTML: "<p>Hello</p>", Headers: map[string]string{"X-Order": "42"},
		Metadata: json.RawMessage(metadata), Tags: []string{"receipt", "shop", "receipt"}, ThreadID: "order-42", InReplyTo: "<a@demo.test>",
		Attachments: []client.Attachment{client.File("fixture_test.go"), client.Bytes("empty", nil),
			{Filename: "x", ContentType: "image/png", ContentID: "logo", Disposition: "inline", Content: strings.NewReader("png")}},
	})
	h.want("sending", err)
	if a.Status != client.Queued || a.ThreadID != "order-42" || string(a.Metadata) != metadata || strings.Join(a.Tags, " ") != "receipt shop" || len(a.Recipients) != 3 || a.Recipients[2].Type != "bcc" ||
		a.MessageID != "<"+a.ID+"@demo.test>" || a.Replayed || a.SendAt != nil {
		h.Errorf("accepted %+v", a)
	}
	m := h.await(a.ID, settled)
	if m.Status != client.Delivered || m.Subject != "<Grüße>" || string(m.Metadata) != metadata || strings.Join(m.Tags, " ") != "receipt shop" || m.ThreadID != "order-42" || m.MailboxID != "" ||
		len(m.Recipients) != 3 || len(m.Recipients[0].Timeline) != 1 || m.Recipients[0].Timeline[0].Outcome != client.Delivered || m.Size < 1000 {
		h.Errorf("shown as %s", raw(h.T, m))
	}
	if all := collect(h, h.c.Messages(ctx, client.MessageFilter{})); len(all) != 1 || all[0].ID != a.ID || all[0].Recipients[0].Timeline != nil {
		h.Errorf("the messages are %+v", all)
	}
	found := client.MessageFilter{Recipients: []string{"bob@demo.test"}, From: []string{"demo.test"}, Subject: "grüße", Statuses: []client.State{client.Delivered}, MetadataKeys: []string{"n"},
		Metadata: map[string]string{"s": "<b>"}, Tags: []string{"none", "shop"}, ThreadID: "order-42", CreatedAfter: a.CreatedAt, CreatedBefore: time.Now()}
	none := found
	none.Tags = []string{"sho"}
	for want, f := range map[int]client.MessageFilter{1: found, 0: none} {
		if all := collect(h, h.c.Messages(ctx, f)); len(all) != want {
			h.Errorf("%+v finds %+v", f, all)
		}
	}
	tagged := client.EventFilter{MessageID: a.ID, Tags: []string{"none", "shop"}}
	for len(collect(h, h.c.Events(ctx, tagged))) < len(m.Recipients) {
		<-h.wake.C
	}
	if all := collect(h, h.c.Events(ctx, client.EventFilter{MessageID: a.ID, Tags: []string{"sho"}})); len(all) > 0 {
		h.Errorf("the events with another tag are %+v", all)
	}
	_, err = h.c.Send(ctx, &client.Send{FromEmail: "x@elsewhere.example", To: []string{"bob@demo.test"}, Subject: "x", Text: "x"})
	refused(h, "a foreign sender", err, 403, "sender_not_allowed")
	_, err = h.c.GetMessage(ctx, nobody)
	refused(h, "no message", err, 404, "not_found")
}

func (h *fixture) batches() {
	h.Helper()
	ctx := h.Context()
	one := func(to string) client.Send {
		return client.Send{FromEmail: "alice@demo.test", To: []string{to}, Subject: "Batch", Text: "x", Attachments: []client.Attachment{client.Bytes("a.txt", []byte("a"))}}
	}
	b := &client.Batch{Messages: []client.BatchMessage{one("delivered@simulator.test"), one("bob@demo.test")}, IdempotencyKey: "batch-1"}
	got, err := h.c.SendBatch(ctx, b)
	h.want("a batch", err)
	if len(got.Data) != 2 || got.Data[0].Accepted == nil || got.Data[1].Accepted.Recipients[0].Email != "bob@demo.test" || got.Replayed {
		h.Errorf("answered %+v", got)
	}
	again, err := h.c.SendBatch(ctx, b)
	if err != nil || !again.Replayed || again.Data[1].Accepted.ID != got.Data[1].Accepted.ID {
		h.Errorf("again %+v, %v", again, err)
	}
	b.Messages[0] = one("x")
	_, err = h.c.SendBatch(ctx, b)
	refused(h, "another under the same key", err, 422, "idempotency_key_reused")
	b.IdempotencyKey = ""
	_, err = h.c.SendBatch(ctx, b)
	refused(h, "half a batch", err, 422, "validation_failed", "messages[0].to[0] invalid_address")
	b.Partial = true
	got, err = h.c.SendBatch(ctx, b)
	h.want("what can be accepted", err)
	if got.Data[0].Problem == nil || got.Data[0].Accepted != nil || got.Data[1].Accepted == nil || got.Data[1].Problem != nil {
		h.Fatalf("answered %+v", got)
	}
	refused(h, "the message", got.Data[0].Problem, 422, "validation_failed", "to[0] invalid_address")
	keyed := one("bob@demo.test")
	keyed.IdempotencyKey = "x"
	b.Messages[0] = keyed
	if _, err := h.c.SendBatch(ctx, b); err == nil {
		h.Error("a message of a batch may have a key")
	}
	_, err = h.c.SendBatch(ctx, &client.Batch{})
	refused(h, "no messages", err, 422, "validation_failed", "messages required")
}

func (h *fixture) scheduling() {
	h.Helper()
	ctx := h.Context()
	const html = "<table><tr><td>Lamp</td><td>2</td></tr></table><a href=https://x.example/>Read on</a>"
	for _, c := range []struct {
		m    client.Send
		want string
	}{
		{client.Send{HTML: html}, "\r\n\r\nLamp  2\r\n\r\nRead on <https://x.example/>\r\n--"},
		{client.Send{HTML: html, HTMLOnly: true}, "Content-Type: text/html; charset=utf-8\r\nContent-Transfer-Encoding: 7bit\r\n\r\n" + html + "\r\n"},
		{client.Send{HTML: html, HTMLOnly: true, Text: "given"}, "\r\n\r\ngiven\r\n--"},
		{client.Send{HTML: "<img src=x>"}, "Content-Type: text/html; charset=utf-8\r\nContent-Transfer-Encoding: 7bit\r\n\r\n<img src=x>\r\n"},
	} {
		c.m.FromEmail, c.m.To, c.m.Subject, c.m.SendAt = "alice@demo.test", []string{"bob@demo.test"}, "HTML", time.Now().Add(time.Hour)
		a, err := h.c.Send(ctx, &c.m)
		h.want("sending HTML", err)
		var text strings.Builder
		h.want("its bytes", h.c.GetMessageRaw(ctx, a.ID, &text))
		if !strings.Contains(text.String(), c.want) || strings.Contains(text.String(), "multipart") != strings.HasSuffix(c.want, "--") {
			h.Errorf("%+v is sent as\n%s", c.m, text.String())
		}
		_, err = h.c.CancelMessage(ctx, a.ID)
		h.want("cancelling it", err)
	}
	at := time.Now().Add(24 * time.Hour).UTC().Truncate(time.Second)
	a, err := h.c.Send(ctx, &client.Send{FromEmail: "alice@demo.test", To: []string{"bob@demo.test"}, Bcc: []string{"secret@demo.test"}, Subject: "Later", Text: "x", SendAt: at})
	h.want("scheduling", err)
	if a.Status != client.Scheduled || a.SendAt == nil || !a.SendAt.Equal(at) {
		h.Errorf("accepted %+v", a)
	}
	_, err = h.c.Send(ctx, &client.Send{FromEmail: "alice@demo.test", To: []string{"bob@demo.test"}, Subject: "Later", Text: "x", SendAt: at.AddDate(0, 0, 31)})
	refused(h, "in a month", err, 422, "validation_failed", "send_at too_far_ahead")
	whole, err := h.c.Send(ctx, &client.Send{FromEmail: "alice@demo.test", FromName: "Lee, Ann", To: []string{"Bob B <bob@demo.test>"}, Subject: "All", HTML: "<p>Hi</p>", Text: "Hi", SendAt: at,
		ThreadID: "order/9", Attachments: []client.Attachment{{Filename: "a.txt", Content: strings.NewReader("file")}}})
	h.want("a whole one", err)
	got, err := h.c.GetMessage(ctx, whole.ID)
	h.want("its content", err)
	if got.ContentStatus != "available" || strings.TrimSpace(*got.Text) != "Hi" || strings.TrimSpace(*got.HTML) != "<p>Hi</p>" || len(got.Attachments) != 1 || !slices.Equal(got.From, []client.Address{{Name: "Lee, Ann", Email: "alice@demo.test"}}) ||
		!slices.Equal(got.To, []client.Address{{Name: "Bob B", Email: "bob@demo.test"}}) || !strings.HasSuffix(got.ThreadURL, "/threads/order%2F9") {
		h.Errorf("it is %+v", got)
	}
	var file strings.Builder
	h.want("its file", h.c.GetMessageAttachment(ctx, whole.ID, 0, &file))
	if file.String() != "file" {
		h.Errorf("its file is %q", file.String())
	}
	thread, err := h.c.GetThread(ctx, "order/9", client.Paging{}, client.ExpandText)
	h.want("its thread", err)
	if m := thread.Messages[0]; strings.TrimSpace(*m.Text) != "Hi" || !slices.Equal(m.To, got.To) || !slices.Equal(m.From, got.From) {
		h.Errorf("the thread has %+v", m)
	}
	_, err = h.c.CancelMessage(ctx, whole.ID)
	h.want("cancelling it", err)
	var text strings.Builder
	h.want("its bytes", h.c.GetMessageRaw(ctx, a.ID, &text))
	if got := text.String(); !strings.Contains(got, "Subject: Later\r\n") || !strings.Contains(got, a.MessageID) || !strings.HasSuffix(got, "\r\n\r\nx\r\n") || strings.Contains(got, "secret") {
		h.Errorf("its bytes are %q", got)
	}
	m, err := h.c.RescheduleMessage(ctx, a.ID, at.Add(time.Hour))
	if err != nil || m.SendAt == nil || !m.SendAt.Equal(at.Add(time.Hour)) {
		h.Errorf("moved to %+v, %v", m, err)
	}
	if m, err = h.c.CancelMessage(ctx, a.ID); err != nil || m.Status != client.Cancelled {
		h.Errorf("cancelled: %+v, %v", m, err)
	}
	_, err = h.c.CancelMessage(ctx, a.ID)
	h.want("cancelling again", err)
	_, err = h.c.RescheduleMessage(ctx, a.ID, at)
	refused(h, "moving it", err, 409, "not_scheduled")
	_, err = h.c.RetryMessage(ctx, a.ID)
	refused(h, "retrying it", err, 409, "not_retryable")

	a, err = h.c.Send(ctx, &client.Send{FromEmail: "alice@demo.test", To: []string{"deferred@simulator.test"}, Subject: "Twice", Text: "x"})
	h.want("sending", err)
	h.await(a.ID, func(m *client.Message) bool { return m.Status == client.Deferred })
	_, err = h.c.RetryMessage(ctx, a.ID)
	h.want("retrying", err)
	if m = h.await(a.ID, settled); m.Status != client.Delivered || m.Recipients[0].Attempts != 2 {
		h.Errorf("retried: %s", raw(h.T, m))
	}
}

func (h *fixture) threads() {
	h.Helper()
	ctx := h.Context()
	const id = "a/b?c#d%20ü"
	first, err := h.c.Send(ctx, &client.Send{FromEmail: "alice@demo.test", To: []string{"bob@demo.test"}, Cc: []string{"c@simulator.test"}, Subject: "x", Text: "x", ThreadID: id})
	h.want("sending", err)
	h.await(first.ID, settled)
	second, err := h.c.Send(ctx, &client.Send{FromEmail: "bob@demo.test", To: []string{"d@simulator.test"}, Subject: "Re: x", Text: "x", InReplyTo: first.MessageID})
	h.want("answering", err)
	if second.ThreadID != id {
		h.Errorf("the answer is in %q", second.ThreadID)
	}
	all := collect(h, h.c.ThreadMessages(ctx, id))
	if len(all) != 3 || all[0].ID != first.ID || all[0].Direction != "outbound" || all[1].Direction != "inbound" || all[1].MailboxID != h.boxes[1] || all[1].Status != "" ||
		all[2].ID != second.ID || len(all[0].Cc) != 1 || all[0].Size == 0 {
		h.Errorf("the thread is %s", raw(h.T, all))
	}
	page, err := h.c.GetThread(ctx, id, client.Paging{Limit: 1})
	if err != nil || page.ID != id || !page.HasMore || len(page.Messages) != 1 {
		h.Errorf("a page of it is %+v, %v", page, err)
	}
	page, err = h.c.GetThread(ctx, id, client.Paging{After: page.NextCursor})
	if err != nil || page.HasMore || len(page.Messages) != 2 || page.NextCursor != "" {
		h.Errorf("the next is %+v, %v", page, err)
	}
	_, err = h.c.GetThread(ctx, "nothing", client.Paging{})
	refused(h, "no thread", err, 404, "not_found")
}
