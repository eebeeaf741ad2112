// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"strings"
	"testing"
	"time"

	"github.com/mailstead/mailstead/internal/outbound"
	"github.com/mailstead/mailstead/internal/queue"
)

// All templates parse: an error would show up only when the page is first opened.
func TestTemplates(t *testing.T) {
	l, err := newRenderer()
	if err != nil {
		t.Fatal(err)
	}
	for name, page := range l.pages {
		if _, err := page(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Pages show SMTP replies literally, escaped. The test builds its own data, since the sandbox has
// no SMTP transcripts.
func TestConversations(t *testing.T) {
	l, err := newRenderer()
	if err != nil {
		t.Fatal(err)
	}
	now := time.Date(2026, 5, 4, 10, 0, 0, 0, time.UTC)
	s := sentMessagePage{Message: outbound.Message{ID: 1, Status: queue.Deferred, CreatedAt: now}, Cancel: true, Retry: true, Courses: []recipientDelivery{{
		DeliveryStatus: queue.DeliveryStatus{Recipient: "bob@example.org", State: queue.Deferred, DueAt: now.Add(time.Hour), Code: 451, Enhanced: "4.7.1", Reply: "<b>later</b>", Remote: "mx.example.org"},
		Tries: []queue.Attempt{{Number: 1, StartedAt: now, Duration: 48 * time.Millisecond, Outcome: queue.Deferred, Host: "mx.example.org", IP: "192.0.2.25", TLS: "TLS 1.3", Stage: "rcpt",
			Transcript: "S: 220 <script>hi</script>\nC: EHLO mail.example.net"},
			{StartedAt: now, Outcome: queue.Deferred, Host: "in.example.org", Stage: queue.StageDelay, Code: 451, Enhanced: "4.4.1", Reply: "<i>no answer</i>"},
			{StartedAt: now, Outcome: queue.Deferred, Stage: queue.StageDelay, Code: 452, Enhanced: "4.3.1"},
			{StartedAt: now, Outcome: queue.Delivered, Stage: queue.StageAutoReply, Reply: "I am away"},
			{StartedAt: now, Outcome: queue.Bounced, Host: "in.example.org", Stage: queue.StageReport, Code: 550, Enhanced: "5.1.1", Reply: "gone"},
			{StartedAt: now, Outcome: queue.Complained, Host: "isp.example", Stage: queue.StageComplaint}},
	}}}
	var out strings.Builder
	if err := l.render(&out, pageData{page: page{Template: "message", Title: "x", Data: s}, Now: now}); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"S: 220 &lt;script&gt;hi&lt;/script&gt;\nC: EHLO mail.example.net</pre>", "451 4.7.1 &lt;b&gt;later&lt;/b&gt;", "mx.example.org (192.0.2.25), TLS 1.3, decided at rcpt", ">in 1 hour</time>", "in 48ms",
		"Reported: still being tried", "<code>451 4.4.1 &lt;i&gt;no answer&lt;/i&gt;</code> <small>said in.example.org</small>", "<code>452 4.3.1 </code>", "Answered automatically", "<code>I am away</code>",
		"Reported: bounced", "<code>550 5.1.1 gone</code>", "Called spam", `<p class="said"> <small>said isp.example</small>`,
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the page lacks %q:\n%s", want, &out)
		}
	}
}
