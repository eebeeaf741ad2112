// SPDX-License-Identifier: Apache-2.0

package outbound

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/message"
)

var today = time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC)

func good() SendRequest {
	return SendRequest{FromEmail: "ann@shop.example", To: []string{"Bob <bob@example.com>"}, Subject: "Hi", Text: "Hello"}
}

func addresses(n int) (list []string) {
	for i := range n {
		list = append(list, fmt.Sprintf("r%d@example.com", i))
	}
	return list
}

func attachments(n int, size int64) (list []Attachment) {
	for i := range n {
		list = append(list, Attachment{Filename: fmt.Sprint(i, ".txt"), Size: size, Open: func() (io.ReadCloser, error) {
			return io.NopCloser(strings.NewReader("")), nil
		}})
	}
	return list
}

// Each broken rule of a send is reported with its field and code.
func TestSendRules(t *testing.T) {
	for name, c := range map[string]struct {
		change      func(*SendRequest)
		field, code string
	}{
		"no sender":             {func(s *SendRequest) { s.FromEmail = "" }, "from_email", "invalid_address"},
		"a named sender":        {func(s *SendRequest) { s.FromEmail = "Ann <ann@shop.example>" }, "from_email", "invalid_address"},
		"a folded name":         {func(s *SendRequest) { s.FromName = "Ann\r\nBcc: x@y.example" }, "from_name", "control_character"},
		"nobody":                {func(s *SendRequest) { s.To = nil }, "to", "required"},
		"a bad recipient":       {func(s *SendRequest) { s.Cc = []string{"a@example.com", "nobody"} }, "cc[1]", "invalid_address"},
		"51 recipients":         {func(s *SendRequest) { s.Bcc = addresses(50) }, "to", "too_many_recipients"},
		"a bad reply address":   {func(s *SendRequest) { s.ReplyTo = "x" }, "reply_to", "invalid_address"},
		"no subject":            {func(s *SendRequest) { s.Subject = " " }, "subject", "required"},
		"a folded subject":      {func(s *SendRequest) { s.Subject = "a\nb" }, "subject", "control_character"},
		"neither text nor html": {func(s *SendRequest) { s.Text = "" }, "text", "text_or_html_required"},
		"11 attachments":        {func(s *SendRequest) { s.Attachments = attachments(11, 1) }, "attachments", "too_many_attachments"},
		"26 MB":                 {func(s *SendRequest) { s.Attachments = attachments(2, 13<<20) }, "attachments", "attachments_too_large"},
		"no file name":          {func(s *SendRequest) { s.Attachments = attachments(1, 1); s.Attachments[0].Filename = "" }, "attachments[0].filename", "required"},
		"not an X- header":      {func(s *SendRequest) { s.Headers = map[string]string{"Subject": "x"} }, "headers.Subject", "header_not_allowed"},
		"a header of ours":      {func(s *SendRequest) { s.Headers = map[string]string{"x-mailstead-id": "x"} }, "headers.x-mailstead-id", "header_reserved"},
		"a hostile name":        {func(s *SendRequest) { s.Headers = map[string]string{"X-A\r\nBcc": "x"} }, "headers[0]", "invalid_header_name"},
		"a hostile value":       {func(s *SendRequest) { s.Headers = map[string]string{"X-A": "x\r\nBcc: y@z.example"} }, "headers.X-A", "control_character"},
		"a List-Id with lines":  {func(s *SendRequest) { s.Headers = map[string]string{"List-Id": "x\r\nBcc: y <a.example>"} }, "headers.List-Id", "invalid_header_value"},
		"a List-Id of one word": {func(s *SendRequest) { s.Headers = map[string]string{"List-ID": "<news>"} }, "headers.List-ID", "invalid_header_value"},
		"an odd Precedence":     {func(s *SendRequest) { s.Headers = map[string]string{"Precedence": "first-class"} }, "headers.Precedence", "invalid_header_value"},
		"an odd Auto-Submitted": {func(s *SendRequest) { s.Headers = map[string]string{"Auto-Submitted": "yes"} }, "headers.Auto-Submitted", "invalid_header_value"},
		"an odd Feedback-ID":    {func(s *SendRequest) { s.Headers = map[string]string{"Feedback-ID": "a:b"} }, "headers.Feedback-ID", "invalid_header_value"},
		"no reference":          {func(s *SendRequest) { s.Headers = map[string]string{"References": " "} }, "headers.References", "invalid_header_value"},
		"a broken reference":    {func(s *SendRequest) { s.Headers = map[string]string{"References": "<a@x.example> b"} }, "headers.References", "invalid_header_value"},
		"two answers": {func(s *SendRequest) {
			s.InReplyTo, s.Headers = "a@x.example", map[string]string{"In-Reply-To": "<b@x.example>"}
		}, "headers.In-Reply-To", "invalid_header_value"},
		"a header twice": {func(s *SendRequest) {
			s.Headers = map[string]string{"List-Id": "<a.example>", "list-id": "<a.example>"}
		}, "headers.list-id", "duplicate_header"},
		"a bad tag":            {func(s *SendRequest) { s.Tags = []string{"a", "a b"} }, "tags[1]", "invalid_tag"},
		"many tags":            {func(s *SendRequest) { s.Tags = strings.Split("a b c d e f g h i j k", " ") }, "tags", "too_many_tags"},
		"too many tags":        {func(s *SendRequest) { s.Tags = make([]string, 20_000) }, "tags", "too_many_tags"},
		"metadata a list":      {func(s *SendRequest) { s.Metadata = []byte(`[1]`) }, "metadata", "invalid_metadata"},
		"metadata too long":    {func(s *SendRequest) { s.Metadata = []byte(`{"a":"` + strings.Repeat("x", maxMetadata) + `"}`) }, "metadata", "too_long"},
		"a thread with a line": {func(s *SendRequest) { s.ThreadID = "a\nb" }, "thread_id", "invalid_thread_id"},
		"a time gone by":       {func(s *SendRequest) { s.SendAt = today.Add(-maxSendAtPast - time.Second) }, "send_at", "in_the_past"},
		"a time far ahead":     {func(s *SendRequest) { s.SendAt = today.Add(maxSendAtAhead + time.Second) }, "send_at", "too_far_ahead"},
		"a bad in_reply_to":    {func(s *SendRequest) { s.InReplyTo = "a b" }, "in_reply_to", "message_id"},
	} {
		s := good()
		c.change(&s)
		_, bad := s.validate(today)
		if len(bad) != 1 || bad[0].Path != c.field || bad[0].Code != c.code {
			t.Errorf("%s: got %v, want %s %s alone", name, bad, c.field, c.code)
		}
	}
}

// Fields that describe the kind of mail and its conversation.
func TestSendStandardHeaders(t *testing.T) {
	s := good()
	s.Headers = map[string]string{
		"list-id": "News, weekly <news.shop.example>", "Precedence": "Bulk", "Auto-Submitted": "auto-generated", "Feedback-ID": "spring:news:42:shop",
		"In-Reply-To": "<2@x.example>", "References": "<1@x.example>  <0@x.example>", "X-Order": "7",
	}
	l, bad := s.validate(today)
	if len(bad) > 0 {
		t.Fatal(bad)
	}
	if got := fmt.Sprint(l.draft.ExtraFields); got != "[{Auto-Submitted auto-generated} {Feedback-ID spring:news:42:shop} {Precedence Bulk} {X-Order 7} {List-Id News, weekly <news.shop.example>}]" || !l.hasFeedbackID {
		t.Errorf("the fields are %s", got)
	}
	if got := fmt.Sprint(l.draft.InReplyTo, l.draft.References); got != "<2@x.example>[<1@x.example> <0@x.example> <2@x.example>]" {
		t.Errorf("it answers %s", got)
	}
	l.setReferences("<9@x.example>", "<2@x.example>") // References of its thread
	if got := fmt.Sprint(l.draft.References); got != "[<1@x.example> <0@x.example> <2@x.example>]" {
		t.Errorf("in a thread it refers to %s", got)
	}
}

// All broken rules are reported at once.
func TestSendRulesTogether(t *testing.T) {
	s := SendRequest{FromEmail: "x", Cc: []string{"y"}, Headers: map[string]string{"A": "b"}, Metadata: []byte("1"), Attachments: attachments(11, 3<<20)}
	_, bad := s.validate(today)
	var fields []string
	for _, one := range bad {
		fields = append(fields, one.Path)
	}
	want := []string{"from_email", "to", "cc[0]", "subject", "text", "attachments", "attachments", "headers.A", "metadata"}
	if !slices.Equal(fields, want) {
		t.Errorf("got %v, want %v", fields, want)
	}
}

func TestSendRecipients(t *testing.T) {
	s := good()
	s.To = []string{"a@example.com", "A@EXAMPLE.com"}
	s.Cc = []string{"a@example.com", "b@example.com"}
	s.Bcc = []string{"b@example.com", "c@example.com", "c+x@example.com"}
	l, bad := s.validate(today)
	if len(bad) > 0 {
		t.Fatal(bad)
	}
	var got []string
	for _, r := range l.recipients {
		got = append(got, r.kind+" "+r.String())
	}
	want := []string{"to a@example.com", "cc b@example.com", "bcc c@example.com", "bcc c+x@example.com"}
	if !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if len(l.draft.To) != 1 || len(l.draft.Cc) != 1 {
		t.Errorf("the header names %v and %v", l.draft.To, l.draft.Cc)
	}
}

// A local part that needs quotation marks has one pair of them in the header, as in
// the envelope.
func TestSendQuotedAddresses(t *testing.T) {
	s := SendRequest{FromEmail: `"a b"@shop.example`, FromName: "Ann", ReplyTo: `R <"r\"r"@shop.example>`, To: []string{`"john doe"@a.example`, `"tom"@a.example`}, Subject: "x", Text: "x"}
	l, bad := s.validate(today)
	if len(bad) > 0 {
		t.Fatal(bad)
	}
	var out strings.Builder
	if _, err := message.Compose(&out, &l.draft); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"From: Ann <\"a b\"@shop.example>\r\n", "Reply-To: R <\"r\\\"r\"@shop.example>\r\n", "To: \"john doe\"@a.example, tom@a.example\r\n",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("lacks %s in\n%s", want, out.String())
		}
	}
}

// What the caller could not read is reported once, by the caller.
func TestSendFaultsOfTheListener(t *testing.T) {
	s := SendRequest{
		FromEmail: "ann@shop.example", Attachments: make([]Attachment, 2), Headers: map[string]string{"X-A": "", "b": "c"},
		RequestFaults: fault.FieldErrors{{Path: "to"}, {Path: "html"}, {Path: "attachments[1]"}, {Path: "headers.X-A"}, {Path: "sub"}},
	}
	_, bad := s.validate(today)
	var fields []string
	for _, one := range bad {
		fields = append(fields, one.Path)
	}
	want := []string{"to", "html", "attachments[1]", "headers.X-A", "sub", "subject", "attachments[0].filename", "headers.b"}
	if !slices.Equal(fields, want) {
		t.Errorf("got %v, want %v", fields, want)
	}
}

// A time in the recent past means now; a future time has microsecond precision.
func TestSchedule(t *testing.T) {
	for _, c := range []struct{ at, want time.Time }{
		{time.Time{}, time.Time{}}, {today, time.Time{}}, {today.Add(-maxSendAtPast), time.Time{}},
		{today.Add(time.Hour + time.Nanosecond), today.Add(time.Hour)}, {today.Add(maxSendAtAhead), today.Add(maxSendAtAhead)},
	} {
		if got, err := normalizeSendAt(c.at, today); err != nil || !got.Equal(c.want) {
			t.Errorf("%v gives %v, %v", c.at, got, err)
		}
	}
}
