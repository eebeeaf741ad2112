// SPDX-License-Identifier: Apache-2.0

package clienttest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mailstead/mailstead/client"
	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/folder"
	"github.com/mailstead/mailstead/internal/server/servertest"
)

// receive simulates a received message, which must be accepted for one recipient, and returns its
// mailbox and id.
func (h *fixture) receive(s *client.SimulatedMessage) (mailbox, id string) {
	h.Helper()
	out, err := h.c.SimulateInbound(h.Context(), s)
	h.want("receiving", err)
	if !out.Accepted || out.SMTPCode != 250 || len(out.Recipients) != 1 || out.Recipients[0].ID == "" {
		h.Fatalf("it is not accepted: %+v", out)
	}
	return out.Recipients[0].MailboxID, out.Recipients[0].ID
}

// arrival waits for the event of a received message.
func (h *fixture) arrival(id string) (e client.Event, data client.InboundData) {
	h.Helper()
	for {
		for e, err := range h.c.Events(h.Context(), client.EventFilter{Types: []string{"inbound_email"}}) {
			h.want("walking through events", err)
			if data = (client.InboundData{}); e.Decode(&data) == nil && data.ID == id {
				return e, data
			}
		}
		select {
		case <-h.wake.C:
		case <-h.Context().Done():
			h.Fatal("there is no event")
		}
	}
}

func (h *fixture) raw(mailbox, id string) string {
	h.Helper()
	var b bytes.Buffer
	h.want("reading the raw message", h.c.GetMailboxMessageRaw(h.Context(), mailbox, id, &b))
	return b.String()
}

func (h *fixture) file(mailbox, id string, n int) string {
	h.Helper()
	var b bytes.Buffer
	h.want("reading a file", h.c.GetMailboxMessageAttachment(h.Context(), mailbox, id, n, &b))
	return b.String()
}

// mail reads received messages with every operation for them.
func (h *fixture) mail() {
	h.Helper()
	ctx := h.Context()
	image := strings.Repeat("\x89PNG\r\n\x1a\n", 20_000)
	logo := client.Bytes("logo.png", []byte(image))
	logo.ContentID = "logo"
	box, id := h.receive(&client.SimulatedMessage{
		From: "Bobby <bob@elsewhere.example>", To: []string{"Alice <alice+shop@demo.test>"}, Cc: []string{"carol@elsewhere.example"}, ReplyTo: "desk@elsewhere.example",
		Subject: "Grüße & mehr", Text: "Hello\r\nAlice", HTML: `<p>Hello</p><img src="cid:logo">`, MessageID: "<1@elsewhere.example>", InReplyTo: "<0@demo.test>",
		Headers: map[string]string{"List-Id": "News <news.elsewhere.example>"}, RcptTo: []string{"alice+shop@demo.test"},
		Attachments:  []client.Attachment{logo, client.Bytes("prices.csv", []byte("1,2\r\n"))},
		CheckResults: &client.CheckResults{SPF: "pass", DKIM: "fail"},
	})
	if box != h.boxes[0] {
		h.Errorf("it is in %s", box)
	}
	m, err := h.c.GetMailboxMessage(ctx, box, id)
	h.want("showing the message", err)
	want := client.MessageSummary{
		MessageID: "<1@elsewhere.example>", Subject: "Grüße & mehr", From: []client.Address{{Name: "Bobby", Email: "bob@elsewhere.example"}},
		To: []client.Address{{Name: "Alice", Email: "alice+shop@demo.test"}}, Cc: []client.Address{{Email: "carol@elsewhere.example"}}, Date: m.Date,
	}
	if raw(h.T, m.MessageSummary) != raw(h.T, want) || m.Date == nil || m.MailboxID != box || m.ThreadID == "" || m.OutboundID != "" || m.Size < int64(len(image)) ||
		m.CheckResults != (client.CheckResults{SPF: "pass", DKIM: "fail", DMARC: "none", Spam: "none"}) || time.Since(m.ReceivedAt) > time.Hour {
		h.Errorf("it is %s", raw(h.T, m))
	}
	if m.Text == nil || strings.TrimSpace(*m.Text) != "Hello\nAlice" || m.HTML == nil || !strings.Contains(*m.HTML, "cid:logo") || m.TextTruncated || m.HTMLTruncated ||
		m.InReplyTo != "<0@demo.test>" || !slices.Equal(m.References, []string{"<0@demo.test>"}) || raw(h.T, m.ReplyTo) != `[{"name":"","email":"desk@elsewhere.example"}]` {
		h.Errorf("its content is %s", raw(h.T, m.MessageContent))
	}
	if !slices.Contains(m.Headers, client.HeaderField{Name: "List-Id", Value: "News <news.elsewhere.example>"}) ||
		m.Headers[0] != (client.HeaderField{Name: "Return-Path", Value: "<bob@elsewhere.example>"}) {
		h.Errorf("its header is %+v", m.Headers)
	}
	base := h.s.Dev.BaseURL + "/api/v1/mailboxes/" + box + "/messages/" + id
	files := []client.MessageFile{
		{Number: 0, Filename: "logo.png", ContentType: "image/png", Size: int64(len(image)), ContentID: "logo", Disposition: "inline", URL: base + "/attachments/0"},
		{Number: 1, Filename: "prices.csv", ContentType: "text/csv", Size: 5, Disposition: "attachment", URL: base + "/attachments/1"},
	}
	if !slices.Equal(m.Attachments, files) || m.RawURL != base+"/raw" {
		h.Errorf("its files are %+v, the whole is at %s", m.Attachments, m.RawURL)
	}
	if h.file(box, id, 0) != image || h.file(box, id, 1) != "1,2\r\n" {
		h.Error("a file is another")
	}
	if text := h.raw(box, id); int64(len(text)) != m.Size || !strings.HasPrefix(text, "Return-Path: <bob@elsewhere.example>\r\nDelivered-To: alice+shop@demo.test\r\n") {
		h.Errorf("the message is\n%.300s", text)
	}
	e, data := h.arrival(id)
	if raw(h.T, data.MessageContent) != raw(h.T, m.MessageContent) || raw(h.T, data.MessageSummary) != raw(h.T, m.MessageSummary) || data.RawURL != m.RawURL ||
		data.Subaddress != "shop" || data.Mailbox.Address != "alice@demo.test" || data.Mailbox.ID != box || data.ThreadID != m.ThreadID || data.CheckResults != m.CheckResults ||
		data.Envelope.MailFrom != "bob@elsewhere.example" || !slices.Equal(data.Envelope.RcptTo, []string{"alice+shop@demo.test"}) || data.Gone {
		h.Errorf("the event says %s", e.Data)
	}
	h.findMail(box, id)
	h.moveMail(box, id)
}

// findMail tests lists and filters.
func (h *fixture) findMail(box, first string) {
	h.Helper()
	_, second := h.receive(&client.SimulatedMessage{From: "eve@other.example", To: []string{"alice@demo.test"}, Subject: "Offer", CheckResults: &client.CheckResults{Spam: "spam"}})
	ids := func(f client.MailFilter) (ids []string) {
		for _, m := range collect(h, h.c.MailboxMessages(h.Context(), box, f)) {
			if m.ID == first || m.ID == second {
				ids = append(ids, m.ID)
			}
		}
		return ids
	}
	for _, c := range []struct {
		what string
		f    client.MailFilter
		want []string
	}{
		{"all", client.MailFilter{}, []string{second, first}},
		{"INBOX", client.MailFilter{Folder: "inbox"}, []string{first}},
		{"Junk", client.MailFilter{Folder: "Junk"}, []string{second}},
		{"an author", client.MailFilter{From: "BOB@Elsewhere.example"}, []string{first}},
		{"a domain of authors", client.MailFilter{From: "other.example"}, []string{second}},
		{"not a part of it", client.MailFilter{From: "ther.example"}, nil},
		{"a subject", client.MailFilter{Subject: "grüSSE"}, nil},
		{"a part of a subject", client.MailFilter{Subject: "GRÜßE &"}, []string{first}},
		{"two", client.MailFilter{Subject: "offer", From: "eve@other.example"}, []string{second}},
		{"since then", client.MailFilter{ReceivedAfter: time.Now().Add(-time.Hour)}, []string{second, first}},
		{"to come", client.MailFilter{ReceivedAfter: time.Now().Add(time.Hour)}, nil},
	} {
		if got := ids(c.f); !slices.Equal(got, c.want) {
			h.Errorf("%s: %v, want %v", c.what, got, c.want)
		}
	}
	page, err := h.c.ListMailboxMessages(h.Context(), box, client.MailFilter{}, client.Paging{Limit: 1})
	h.want("listing one", err)
	if len(page.Data) != 1 || !page.HasMore || page.Data[0].ID != second || len(page.Data[0].Folders) != 1 || page.Data[0].Folders[0].Folder != "Junk" {
		h.Errorf("the page is %s", raw(h.T, page))
	}
	if page, err = h.c.ListMailboxMessages(h.Context(), box, client.MailFilter{}, client.Paging{Before: first, Limit: 1}); err != nil || len(page.Data) != 1 || page.Data[0].ID != second {
		h.Errorf("before it: %s, %v", raw(h.T, page), err)
	}
	_, err = h.c.ListMailboxMessages(h.Context(), box, client.MailFilter{Folder: "Nowhere", From: "x@"}, client.Paging{})
	refused(h, "a bad author", err, 422, "validation_failed", "from invalid_address")
	_, err = h.c.ListMailboxMessages(h.Context(), box, client.MailFilter{Folder: "Nowhere"}, client.Paging{})
	refused(h, "no such folder", err, 422, "validation_failed", "folder not_found")
}

// moveMail moves a message through folders until it is in none.
func (h *fixture) moveMail(box, id string) {
	h.Helper()
	ctx := h.Context()
	mailbox, err := db.ParseID(box)
	h.want("reading an id", err)
	in := func(name string, f func(v *folder.View, uid uint32)) {
		h.Helper()
		m, err := h.c.GetMailboxMessage(ctx, box, id)
		h.want("showing it before", err)
		at := slices.IndexFunc(m.Folders, func(p client.MessageFolder) bool { return p.Folder == name })
		if at < 0 {
			h.Fatalf("it is not in %s but %+v", name, m.Folders)
		}
		v, err := h.s.Folders.Open(ctx, mailbox, name, false)
		h.want("opening "+name, err)
		defer v.Close()
		f(v, m.Folders[at].UID)
	}
	where := func(want ...string) {
		h.Helper()
		m, err := h.c.GetMailboxMessage(ctx, box, id)
		h.want("showing it", err)
		var got []string
		for _, p := range m.Folders {
			got = append(got, p.Folder+strings.Join(p.Flags, ""))
		}
		if !slices.Equal(got, want) {
			h.Errorf("it is in %q, want %q", got, want)
		}
	}
	where("INBOX")
	in("INBOX", func(v *folder.View, uid uint32) {
		_, err := v.Move(ctx, []uint32{uid}, "Archive")
		h.want("moving", err)
	})
	where("Archive")
	in("Archive", func(v *folder.View, uid uint32) {
		_, err := v.Copy(ctx, []uint32{uid}, "INBOX")
		h.want("copying", err)
		_, _, err = v.UpdateFlags(ctx, []uint32{uid}, folder.FlagUpdate{Op: folder.AddFlags, Flags: folder.Seen | folder.Deleted})
		h.want("flagging", err)
	})
	where(`Archive\Seen\Deleted`, "INBOX")
	in("Archive", func(v *folder.View, uid uint32) {
		_, err := v.Expunge(ctx, []uint32{uid})
		h.want("expunging", err)
	})
	where("INBOX")
	in("INBOX", func(v *folder.View, uid uint32) {
		_, _, err = v.UpdateFlags(ctx, []uint32{uid}, folder.FlagUpdate{Op: folder.AddFlags, Flags: folder.Deleted})
		h.want("flagging", err)
		_, err := v.Expunge(ctx, []uint32{uid})
		h.want("expunging", err)
	})
	_, err = h.c.GetMailboxMessage(ctx, box, id)
	refused(h, "expunged", err, 404, "not_found")
	refused(h, "its bytes", h.c.GetMailboxMessageRaw(ctx, box, id, &bytes.Buffer{}), 404, "not_found")
	refused(h, "its file", h.c.GetMailboxMessageAttachment(ctx, box, id, 0, &bytes.Buffer{}), 404, "not_found")
	for _, m := range collect(h, h.c.MailboxMessages(ctx, box, client.MailFilter{})) {
		if m.ID == id {
			h.Error("it is listed")
		}
	}
	if e, data := h.arrival(id); data.Gone || data.Text == nil {
		h.Errorf("its event, which was read before, says %s", e.Data)
	}
}

// TestMailOfOthers requests mail with keys that have no access to it.
func TestMailOfOthers(t *testing.T) {
	servertest.Each(t, func(t *testing.T, s *servertest.Server) {
		h := newFixture(t, s)
		ctx := t.Context()
		box, id := h.receive(&client.SimulatedMessage{From: "bob@elsewhere.example", To: []string{"alice@demo.test"}, Text: "secret"})
		other, err := h.c.CreateDomain(ctx, "other.test")
		h.want("adding a domain", err)
		_, err = h.c.VerifyDomainDNS(ctx, other.ID)
		h.want("verifying it", err)
		carol, err := h.c.CreateMailbox(ctx, client.NewMailbox{DomainID: other.ID, LocalPart: "carol"})
		h.want("making a mailbox", err)
		with := func(k client.NewAPIKey) *client.Client {
			k.Name = "test"
			made, err := h.c.CreateAPIKey(ctx, k)
			h.want("making a key", err)
			c, _, _ := to(t, s, made.Key)
			return c
		}
		read := func(c *client.Client, box, id string) []error {
			_, list := c.ListMailboxMessages(ctx, box, client.MailFilter{}, client.Paging{})
			_, one := c.GetMailboxMessage(ctx, box, id)
			return []error{list, one, c.GetMailboxMessageRaw(ctx, box, id, &bytes.Buffer{}), c.GetMailboxMessageAttachment(ctx, box, id, 0, &bytes.Buffer{})}
		}
		for _, err := range read(with(client.NewAPIKey{Scopes: []string{"mailboxes.write", "messages.write", "events.read"}}), box, id) {
			refused(t, "a key without the scope", err, 403, "missing_scope")
		}
		restricted := with(client.NewAPIKey{Domain: "other.test"})
		for _, err := range read(restricted, box, id) {
			refused(t, "a key of another domain", err, 404, "not_found")
		}
		// The id alone is not enough: it must be in the mailbox.
		for _, err := range read(h.c, carol.ID, id)[1:] {
			refused(t, "another mailbox", err, 404, "not_found")
		}
		if list, err := restricted.ListMailboxMessages(ctx, carol.ID, client.MailFilter{}, client.Paging{}); err != nil || len(list.Data) != 0 {
			t.Errorf("its own: %v, %v", list, err)
		}
		out, err := restricted.SimulateInbound(ctx, &client.SimulatedMessage{From: "bob@elsewhere.example", To: []string{"carol@other.test", "alice@demo.test"}})
		h.want("receiving with the restricted key", err)
		if !out.Accepted || out.Recipients[0].ID == "" || out.Recipients[1].SMTPCode != 550 || out.Recipients[1].EnhancedCode != "5.7.1" || out.Recipients[1].ID != "" {
			t.Errorf("received %+v", out)
		}
		h.want("deleting the mailbox", h.c.DeleteMailbox(ctx, box))
		for _, err := range read(h.c, box, id) {
			refused(t, "a deleted mailbox", err, 404, "not_found")
		}
	})
}

// TestHostileMail reads hostile messages.
func TestHostileMail(t *testing.T) {
	parts := strings.Builder{}
	for i := range 10_050 {
		fmt.Fprintf(&parts, "--x\r\nContent-Type: text/plain; name=\"%d.txt\"\r\n\r\n%d\r\n", i, i)
	}
	nested := strings.Builder{}
	for i := range 200 {
		fmt.Fprintf(&nested, "Content-Type: multipart/mixed; boundary=b%d\r\n\r\n--b%d\r\n", i, i)
	}
	const head = "From: bob@elsewhere.example\r\nMIME-Version: 1.0\r\n"
	type check func(h *fixture, m *client.MailboxMessage, box string)
	for name, c := range map[string]struct {
		raw   string
		check check
	}{
		"10,000 parts": {head + "Content-Type: multipart/mixed; boundary=x\r\n\r\n" + parts.String() + "--x--\r\n", func(h *fixture, m *client.MailboxMessage, box string) {
			if len(m.Attachments) != 100 || !m.AttachmentsTruncated || h.file(box, m.ID, 9000) != "9001" {
				h.Errorf("%d files", len(m.Attachments))
			}
			refused(h, "one too many", h.c.GetMailboxMessageAttachment(h.Context(), box, m.ID, 20_000, &bytes.Buffer{}), 404, "not_found")
		}},
		"nested": {head + nested.String() + "\r\nend\r\n", nil},
		"NUL and controls": {head + "Subject: ab\x1bc\r\n\r\na\x00b\x07c\r\nd", func(h *fixture, m *client.MailboxMessage, _ string) {
			if m.Text == nil || *m.Text != "abc\nd" || strings.ContainsAny(m.Subject, "\x00\x1b") {
				h.Errorf("subject %q, text %q", m.Subject, *m.Text)
			}
		}},
		"charsets": {head + "Subject: =?nonsense?Q?=E4?= =?utf-8?B?/w==?=\r\nContent-Type: text/plain; charset=\"x-\xff\"\r\n\r\n\xff\xe4", func(h *fixture, m *client.MailboxMessage, _ string) {
			if m.Text == nil || *m.Text != "ÿä" {
				h.Errorf("text %q", *m.Text)
			}
		}},
		"UTF-16 without its mark": {head + "Content-Type: text/html; charset=utf-16\r\n\r\na\x00b", nil},
		"a flood of fields": {head + strings.Repeat("X-A: b\r\n", 100_000) + "\r\nend", func(h *fixture, m *client.MailboxMessage, _ string) {
			if len(m.Headers) != 500 || !m.HeadersTruncated {
				h.Errorf("%d fields", len(m.Headers))
			}
		}},
		"an endless field": {head + "X-A: " + strings.Repeat("=?utf-8?Q?", 100_000) + "\r\nX-B: c\r\n\r\nend", func(h *fixture, m *client.MailboxMessage, _ string) {
			if size := len(raw(h.T, m.Headers)); !m.HeadersTruncated || size > 40<<10 {
				h.Errorf("the header takes %d bytes", size)
			}
		}},
		"base64 of nothing": {head + "Content-Transfer-Encoding: base64\r\n\r\n" + strings.Repeat("!!!!\r\n", 1_000_000), func(h *fixture, m *client.MailboxMessage, _ string) {
			if *m.Text != "" || !m.TextTruncated {
				h.Errorf("text of %d bytes, %t", len(*m.Text), m.TextTruncated)
			}
		}},
		"a long text": {head + "Content-Type: text/plain; charset=utf-8\r\n\r\n" + strings.Repeat("ä\r\n", 1_000_000), func(h *fixture, m *client.MailboxMessage, _ string) {
			if len(*m.Text) > 64<<10 || len(*m.Text) < 64<<10-3 || !m.TextTruncated || strings.Trim(*m.Text, "ä\n") != "" {
				h.Errorf("text of %d bytes, %t", len(*m.Text), m.TextTruncated)
			}
		}},
		"file names": {head + "Content-Type: multipart/mixed; boundary=x\r\n\r\n" +
			"--x\r\nContent-Disposition: attachment; filename=\"../../etc/passwd\"\r\n\r\n1\r\n" +
			"--x\r\nContent-Disposition: attachment; filename*=utf-8''a%0D%0AX-Evil:%20b%E2%80%AEgpj.exe\r\n\r\n2\r\n" +
			"--x\r\nContent-Disposition: attachment; filename=\"C:\\\\Windows\\\\..\"\r\n\r\n3\r\n" +
			"--x\r\nContent-Disposition: attachment\r\nContent-Type: text/html; name=\"" + strings.Repeat("x", 5000) + ".html\"\r\n\r\n<script>\r\n--x--\r\n", func(h *fixture, m *client.MailboxMessage, box string) {
			var names []string
			for _, f := range m.Attachments {
				names = append(names, f.Filename)
			}
			want := []string{"passwd", "aX-Evil: bgpj.exe", "", strings.Repeat("x", 250) + ".html"}
			if !slices.Equal(names, want) {
				h.Errorf("names %q", names)
			}
			for n, text := range []string{"1", "2", "3", "<script>"} {
				if got := h.file(box, m.ID, n); got != text {
					h.Errorf("file %d is %q", n, got)
				}
			}
		}},
		"nothing":              {"\r\n", nil},
		"no header, long line": {strings.Repeat("x", 300_000), nil},
	} {
		t.Run(name, func(t *testing.T) {
			s := servertest.Start(t)
			h := newFixture(t, s)
			box, id := h.receive(&client.SimulatedMessage{Raw: []byte(c.raw), RcptTo: []string{"alice@demo.test"}, MailFrom: new("")})
			m, err := h.c.GetMailboxMessage(t.Context(), box, id)
			h.want("showing it", err)
			if !strings.HasSuffix(h.raw(box, id), c.raw) {
				t.Error("its bytes are others")
			}
			for i := range m.Attachments[:min(3, len(m.Attachments))] {
				if f := m.Attachments[i]; f.Size != int64(len(h.file(box, id, i))) {
					t.Errorf("file %d has %d bytes, not %d", i, len(h.file(box, id, i)), f.Size)
				}
			}
			if list, err := h.c.ListMailboxMessages(t.Context(), box, client.MailFilter{}, client.Paging{}); err != nil || len(list.Data) != 1 {
				t.Errorf("listed %v, %v", list, err)
			}
			e, data := h.arrival(id)
			if raw(t, data.MessageContent) != raw(t, m.MessageContent) || !json.Valid(e.Data) || len(e.Data) > 600<<10 {
				t.Errorf("the event has %d bytes", len(e.Data))
			}
			if c.check != nil {
				c.check(h, m, box)
			}
		})
	}
}
