// SPDX-License-Identifier: Apache-2.0

package clienttest

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mailstead/mailstead/client"
	"github.com/mailstead/mailstead/internal/server/servertest"
)

// rule is a violation of one rule of a send.
type rule struct {
	breaks func(m *client.Send)
	faults []string
	alone  bool // it can't be combined with the others
	text   bool // it is about text that a template provides
}

func addresses(n int) (list []string) {
	for i := range n {
		list = append(list, fmt.Sprintf("r%d@simulator.test", i))
	}
	return list
}

func files(n int) (list []client.Attachment) {
	for i := range n {
		list = append(list, client.Bytes(fmt.Sprint(i, ".txt"), []byte("x")))
	}
	return list
}

// rules returns violations of all rules of a send.
func rules() map[string]rule {
	long := func(n int) string { return strings.Repeat("x", n) }
	zeros := func(n int64) client.Attachment {
		return client.Attachment{Filename: "zeros", Open: func() (io.ReadCloser, error) {
			return io.NopCloser(io.LimitReader(zero{}, n)), nil
		}}
	}
	return map[string]rule{
		"no sender":            {func(m *client.Send) { m.FromEmail = "" }, []string{"from_email invalid_address"}, true, false},
		"a named sender":       {func(m *client.Send) { m.FromEmail = "A <alice@demo.test>" }, []string{"from_email invalid_address"}, false, false},
		"two senders":          {func(m *client.Send) { m.FromEmail = "alice@demo.test, bob@demo.test" }, []string{"from_email invalid_address"}, true, false},
		"a sender's line":      {func(m *client.Send) { m.FromName = "A\r\nBcc: eve@x.test" }, []string{"from_name control_character"}, false, false},
		"a sender's long name": {func(m *client.Send) { m.FromName = long(1001) }, []string{"from_name too_long"}, true, false},
		"nobody":               {func(m *client.Send) { m.To = nil }, []string{"to required"}, true, false},
		"nobody, but a copy":   {func(m *client.Send) { m.To, m.Cc = nil, []string{"bob@demo.test"} }, []string{"to required"}, true, false},
		"no addresses": {func(m *client.Send) {
			m.To, m.Cc, m.Bcc = []string{"ok@x.test", "x", ""}, []string{"@x"}, []string{"a@b@c", "a b@x.test"}
		}, []string{"to[1] invalid_address", "to[2] invalid_address", "cc[0] invalid_address", "bcc[0] invalid_address", "bcc[1] invalid_address"}, false, false},
		"51 recipients": {func(m *client.Send) {
			m.To, m.Cc, m.Bcc = addresses(49), []string{"c@simulator.test"}, []string{"b@simulator.test"}
		}, []string{"to too_many_recipients"}, true, false},
		"no address for answers": {func(m *client.Send) { m.ReplyTo = "nobody" }, []string{"reply_to invalid_address"}, false, false},
		"no subject":             {func(m *client.Send) { m.Subject = " \t" }, []string{"subject required"}, true, true},
		"a subject's line":       {func(m *client.Send) { m.Subject = "x\nBcc: eve@x.test" }, []string{"subject control_character"}, false, true},
		"a long subject":         {func(m *client.Send) { m.Subject = long(2001) }, []string{"subject too_long"}, true, true},
		"neither text nor html":  {func(m *client.Send) { m.Text, m.HTML = "", "" }, []string{"text text_or_html_required"}, false, true},
		"a long text":            {func(m *client.Send) { m.Text = long(10<<20 + 1) }, []string{"text too_long"}, true, true},
		"a long html":            {func(m *client.Send) { m.HTML = long(10<<20 + 1) }, []string{"html too_long"}, true, true},
		"11 attachments":         {func(m *client.Send) { m.Attachments = files(11) }, []string{"attachments too_many_attachments"}, true, false},
		"25 MB and a byte":       {func(m *client.Send) { m.Attachments = []client.Attachment{zeros(25 << 20), zeros(1)} }, []string{"attachments attachments_too_large"}, true, false},
		"odd attachments": {func(m *client.Send) {
			m.Attachments = files(6)
			m.Attachments[0].Filename, m.Attachments[1].Filename = "", "a\r\nb"
			m.Attachments[2].Disposition, m.Attachments[3].ContentType, m.Attachments[4].ContentID = "hidden", "image", "a b"
		}, []string{"attachments[0].filename required", "attachments[1].filename filename", "attachments[2].disposition unknown_value",
			"attachments[3].content_type media_type", "attachments[4].content_id content_id"}, false, false},
		"headers of others": {func(m *client.Send) {
			m.Headers = map[string]string{"Subject": "x", "X-": "x", "X-A B": "x", "X-Mailstead-Id": "x", "X-One": "x", "x-one": "x", "X-Line": "a\r\nBcc: eve@x.test", "X-Nul": "\x00"}
		}, []string{"headers.Subject header_not_allowed", "headers.X- header_not_allowed", "headers[2] invalid_header_name", "headers.X-Mailstead-Id header_reserved",
			"headers.x-one duplicate_header", "headers.X-Line control_character", "headers.X-Nul control_character"}, false, false},
		"many headers": {func(m *client.Send) {
			m.Headers = map[string]string{}
			for i := range 101 {
				m.Headers[fmt.Sprint("X-", i)] = "x"
			}
		}, []string{"headers too_many_headers"}, true, false},
		"long headers":         {func(m *client.Send) { m.Headers = map[string]string{"X-A": long(64 << 10)} }, []string{"headers too_long"}, true, false},
		"much metadata":        {func(m *client.Send) { m.Metadata = map[string]string{"a": long(16 << 10)} }, []string{"metadata too_long"}, false, false},
		"metadata in a list":   {func(m *client.Send) { m.Metadata = []int{1} }, []string{"metadata wrong_type"}, true, false},
		"a bad thread":         {func(m *client.Send) { m.ThreadID = "a\tb" }, []string{"thread_id invalid_thread_id"}, false, false},
		"a long thread":        {func(m *client.Send) { m.ThreadID = long(256) }, []string{"thread_id invalid_thread_id"}, true, false},
		"an answer to nothing": {func(m *client.Send) { m.InReplyTo = "a b" }, []string{"in_reply_to message_id"}, false, false},
		"yesterday":            {func(m *client.Send) { m.SendAt = time.Now().Add(-24 * time.Hour) }, []string{"send_at in_the_past"}, false, false},
		"next year":            {func(m *client.Send) { m.SendAt = time.Now().Add(365 * 24 * time.Hour) }, []string{"send_at too_far_ahead"}, true, false},
		"leaving by nothing": {func(m *client.Send) { m.Unsubscribe = &client.Unsubscribe{URL: "http://x.test", Mailto: "x"} },
			[]string{"unsubscribe.url invalid_url", "unsubscribe.mailto invalid_address"}, false, false},
		"leaving of two": {func(m *client.Send) { m.Unsubscribe, m.To = &client.Unsubscribe{}, addresses(2) }, []string{"unsubscribe one_recipient_required"}, true, false},
	}
}

type zero struct{}

func (zero) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}

// faultsOf returns the errors of a problem, sorted.
func faultsOf(p *client.Problem) (list []string) {
	for _, e := range p.Errors {
		list = append(list, e.Field+" "+e.Code)
	}
	slices.Sort(list)
	return list
}

// together combines all violations that are possible at once.
func together(rules map[string]rule) rule {
	rules = maps.Clone(rules) // it also applies here
	all := rule{breaks: func(m *client.Send) {
		for _, r := range rules {
			if !r.alone {
				r.breaks(m)
			}
		}
	}}
	for _, r := range rules {
		if !r.alone {
			all.faults = append(all.faults, r.faults...)
		}
	}
	return all
}

// sendByTemplate sends a template's text instead of the message's own.
func sendByTemplate(t *testing.T, c *client.Client, m *client.Send) error {
	found, err := c.GetTemplate(t.Context(), "hello")
	if err != nil {
		t.Fatal(err)
	}
	_, err = c.SendTemplate(t.Context(), &client.TemplateSend{
		FromEmail: m.FromEmail, FromName: m.FromName, To: m.To, Cc: m.Cc, Bcc: m.Bcc, ReplyTo: m.ReplyTo, TemplateID: found.ID, Variables: map[string]string{"name": "Bob"},
		Attachments: m.Attachments, Headers: m.Headers, Metadata: m.Metadata, ThreadID: m.ThreadID, InReplyTo: m.InReplyTo, SendAt: m.SendAt, Unsubscribe: m.Unsubscribe,
	})
	return err
}

// A violation of each rule alone, and all possible ones together, give one 422 with all invalid
// fields; nothing is sent. This holds for every way to send, on both engines.
func TestEveryRule(t *testing.T) {
	ways := map[string]struct {
		send   func(t *testing.T, c *client.Client, m *client.Send) error
		prefix string
	}{
		"send": {func(t *testing.T, c *client.Client, m *client.Send) error {
			_, err := c.Send(t.Context(), m)
			return err
		}, ""},
		"batch": {func(t *testing.T, c *client.Client, m *client.Send) error {
			_, err := c.SendBatch(t.Context(), &client.Batch{Messages: []client.BatchMessage{*hello(), *m}})
			return err
		}, "messages[1]."},
		"partial batch": {func(t *testing.T, c *client.Client, m *client.Send) error {
			got, err := c.SendBatch(t.Context(), &client.Batch{Messages: []client.BatchMessage{*m}, Partial: true})
			if err != nil {
				return err
			}
			if p := got.Data[0].Problem; p != nil {
				return p
			}
			return nil
		}, ""},
		"template": {sendByTemplate, ""},
	}
	servertest.Each(t, func(t *testing.T, s *servertest.Server) {
		c, _, _ := to(t, s, s.Dev.APIKey)
		_, err := c.CreateTemplate(t.Context(), client.NewTemplate{Name: "x", Alias: "hello", TemplateContent: client.TemplateContent{
			Subject: "Hi {{name}}", Text: "Hello", Variables: []client.TemplateVariable{{Key: "name", Required: true}},
		}})
		if err != nil {
			t.Fatal(err)
		}
		for way, w := range ways {
			broken := rules()
			if way == "template" {
				maps.DeleteFunc(broken, func(_ string, r rule) bool { return r.text })
			}
			broken["all at once"] = together(broken)
			for what, r := range broken {
				m := hello()
				r.breaks(m)
				want := slices.Clone(r.faults)
				for i := range want {
					want[i] = w.prefix + want[i]
				}
				slices.Sort(want)
				err := w.send(t, c, m)
				p, ok := err.(*client.Problem) //nolint:errorlint // exactly this
				if !ok || p.Status != 422 || p.Code != "validation_failed" {
					t.Errorf("%s, %s: %v", way, what, err)
				} else if got := faultsOf(p); !slices.Equal(got, want) {
					t.Errorf("%s, %s:\ngot  %q\nwant %q", way, what, got, want)
				}
			}
		}
		page, err := c.ListMessages(t.Context(), client.MessageFilter{}, client.Paging{})
		if err != nil || len(page.Data) != 0 {
			t.Errorf("%d messages were taken, %v", len(page.Data), err)
		}
	})
}

// Messages just within the limits are accepted.
func TestJustWithinTheRules(t *testing.T) {
	servertest.Each(t, func(t *testing.T, s *servertest.Server) {
		c, _, _ := to(t, s, s.Dev.APIKey)
		for what, change := range map[string]func(m *client.Send){
			"50 recipients":  func(m *client.Send) { m.To = addresses(50) },
			"10 attachments": func(m *client.Send) { m.Attachments = files(10) },
			"25 MB": func(m *client.Send) {
				m.Attachments = []client.Attachment{{Filename: "x", Content: io.LimitReader(zero{}, 25<<20)}}
			},
			"html alone":     func(m *client.Send) { m.Text, m.HTML = "", "<p>x</p>" },
			"metadata":       func(m *client.Send) { m.Metadata = json.RawMessage(`{"a":"` + strings.Repeat("x", 16<<10-8) + `"}`) },
			"in 30 days":     func(m *client.Send) { m.SendAt = time.Now().Add(30*24*time.Hour - time.Minute) },
			"a minute ago":   func(m *client.Send) { m.SendAt = time.Now().Add(-time.Minute) },
			"a long thread":  func(m *client.Send) { m.ThreadID = strings.Repeat("ü", 255) },
			"a short header": func(m *client.Send) { m.Headers = map[string]string{"x-a": ""} },
			"a named address": func(m *client.Send) {
				m.To = []string{`"Bob, the <builder>" <bob@demo.test>`}
				m.ReplyTo = "A <a@b.test>"
			},
			"other letters": func(m *client.Send) { m.FromEmail = "ALICE@Demo.TEST"; m.FromName = "Ünï"; m.Subject = "日本" },
		} {
			m := hello()
			change(m)
			if _, err := c.Send(t.Context(), m); err != nil {
				t.Errorf("%s: %v", what, err)
			}
		}
	})
}
