// SPDX-License-Identifier: Apache-2.0

package message_test

import (
	"bufio"
	"fmt"
	"io"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/message"
)

func TestHeaderFields(t *testing.T) {
	h := message.Header("From a@b Thu Jan 1 00:00:00 1970\r\n orphan\r\nSubject : one\r\n\ttwo\r\nno colon\r\nX-Empty:\r\nsubject: three\n\r\nSubject: body\r\n")
	var got []string
	for f := range h.Fields() {
		got = append(got, fmt.Sprintf("%s=%s", f.Name, f.Unfolded()))
	}
	want := []string{"=", "Subject=one\ttwo", "=", "X-Empty=", "subject=three"}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("fields %q, want %q", got, want)
	}
	if n := h.Count("SUBJECT"); n != 2 {
		t.Errorf("%d subjects", n)
	}
	if all := h.All("subject"); len(all) != 2 || all[1].Unfolded() != "three" {
		t.Errorf("all: %v", all)
	}
	if h.Unfolded("Absent") != "" || h.Decoded("absent") != "" {
		t.Error("an absent field has text")
	}
}

func TestWithout(t *testing.T) {
	h := message.Header("Bcc: a@b,\r\n c@d\r\nFrom: a@b\r\nbCC: x@y\r\n junk\r\nTo: b@c\r\nResent-Bcc: z\r\n\r\n")
	if got := string(h.WithoutFields("Bcc", "Resent-Bcc", "Return-Path")); got != "From: a@b\r\nTo: b@c\r\n\r\n" {
		t.Errorf("got %q", got)
	}
	if got := h.WithoutFields("Absent"); string(got) != string(h) {
		t.Errorf("got %q", got)
	}
}

func TestReadHeader(t *testing.T) {
	for _, c := range []struct{ in, header, body string }{
		{"A: b\r\n\r\nbody", "A: b\r\n\r\n", "body"}, {"A: b\n\nbody", "A: b\n\n", "body"}, {"\r\nbody", "\r\n", "body"},
		{"A: b", "A: b", ""}, {"", "", ""}, {"A: " + strings.Repeat("x", 100) + "\r\n\r\n", "A: " + strings.Repeat("x", 100) + "\r\n\r\n", ""},
	} {
		r := bufio.NewReaderSize(strings.NewReader(c.in), 16)
		h, err := message.ReadHeader(r)
		body, _ := io.ReadAll(r)
		if err != nil || string(h) != c.header || string(body) != c.body {
			t.Errorf("%q: %q, %q, %v", c.in, h, body, err)
		}
	}
	_, err := message.ReadHeader(bufio.NewReader(strings.NewReader(strings.Repeat("A: b\r\n", 200_000))))
	if !fault.Is(err, fault.TooLarge) {
		t.Errorf("a large header: %v", err)
	}
}

func TestMissing(t *testing.T) {
	date := time.Date(2026, 11, 20, 10, 0, 0, 0, time.UTC)
	if got := string(message.MissingFields(nil, date, "<1@b>")); got != "Date: Fri, 20 Nov 2026 10:00:00 +0000\r\nMessage-ID: <1@b>\r\nTo: undisclosed-recipients:;\r\n" {
		t.Errorf("got %q", got)
	}
	for _, has := range []string{"to: a@b", "CC: a@b"} {
		if got := message.MissingFields(message.Header("date: x\r\nmessage-id: <a@b>\r\n"+has+"\r\n"), date, "<1@b>"); len(got) > 0 {
			t.Errorf("with %s: %q", has, got)
		}
	}
}

func TestReceived(t *testing.T) {
	date := time.Date(2026, 11, 20, 10, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		r    message.ReceivedField
		want string
	}{
		{message.ReceivedField{Helo: "mail.shop.test", Name: "mail.shop.test", Addr: netip.MustParseAddr("192.0.2.1"), By: "mx.demo.test", With: "ESMTPS", TLS: "TLSv1.3 TLS_AES_128_GCM_SHA256", ID: "0193", For: "bob@demo.test", Date: date},
			"Received: from mail.shop.test (mail.shop.test [192.0.2.1])\r\n by mx.demo.test with ESMTPS id 0193 (TLSv1.3 TLS_AES_128_GCM_SHA256)\r\n for <bob@demo.test>; Fri, 20 Nov 2026 10:00:00 +0000\r\n"},
		{message.ReceivedField{By: "mx.demo.test", With: "ESMTPSA", ID: "0193", Date: date},
			"Received: by mx.demo.test with ESMTPSA id 0193;\r\n Fri, 20 Nov 2026 10:00:00 +0000\r\n"},
		{message.ReceivedField{Helo: "a)\r\nX-Evil: (", Addr: netip.MustParseAddr("2001:db8::1"), By: "mx.demo.test", For: "a\r\nb@c", Date: date},
			"Received: from aX-Evil:  ([IPv6:2001:db8::1])\r\n by mx.demo.test for <ab@c>; Fri, 20 Nov 2026 10:00:00 +0000\r\n"},
	} {
		if got := string(c.r.Append(nil)); got != c.want {
			t.Errorf("got\n%swant\n%s", got, c.want)
		}
	}
	if got := string(message.AppendDeliveredTo(message.AppendReturnPath(nil, ""), "bob@demo.test")); got != "Return-Path: <>\r\nDelivered-To: bob@demo.test\r\n" {
		t.Errorf("got %q", got)
	}
}

func TestParseAddresses(t *testing.T) {
	type a = message.Address
	for _, c := range []struct {
		in   string
		want []a
	}{
		{"", nil}, {" , ,", nil}, {"<>", nil}, {"()", nil},
		{"a@b", []a{{"", "a", "b"}}},
		{"A B <a@b>, c@d (C D)", []a{{"A B", "a", "b"}, {"C D", "c", "d"}}},
		{`"B, A \"x\"" <a@b>`, []a{{`B, A "x"`, "a", "b"}}},
		{"=?utf-8?q?J=C3=B6rg?= Meier <j@b>", []a{{"Jörg Meier", "j", "b"}}},
		{"J\xf6rg <j@b>", []a{{"Jörg", "j", "b"}}},
		{"A.B. C <a@b>", []a{{"A.B. C", "a", "b"}}},
		{"A @ Home <a@b>", []a{{"A @ Home", "a", "b"}}},
		{"Group: a@b, C <c@d>; e@f", []a{{"", "a", "b"}, {"C", "c", "d"}, {"", "e", "f"}}},
		{"undisclosed-recipients:;", nil},
		{"<@x,@y:a@b>", []a{{"", "a", "b"}}},
		{`"a b"@c, "x@y"@z`, []a{{"", "a b", "c"}, {"", "x@y", "z"}}},
		{"a @ b . c", []a{{"", "a", "b.c"}}},
		{"a@[192.0.2.1]", []a{{"", "a", "[192.0.2.1]"}}},
		{"just a name", []a{{"just a name", "", ""}}},
		{"A <a@b", []a{{"A", "a", "b"}}},
		{"A <a@b> junk, c@d", []a{{"A", "a", "b"}, {"", "c", "d"}}},
		{"a@b; c@d", []a{{"", "a", "b"}, {"", "c", "d"}}},
		{"A <>, c@d", []a{{"A", "", ""}, {"", "c", "d"}}},
		{"a@b\r\n , c@d", []a{{"", "a", "b"}, {"", "c", "d"}}},
		{`"unclosed <a@b>, c@d`, []a{{"unclosed <a@b>, c@d", "", ""}}},
		{"a(x)@b(y)", []a{{"y", "a", "b"}}},
	} {
		if got := message.ParseAddresses([]byte(c.in)); !reflect.DeepEqual(got, c.want) {
			t.Errorf("%q gave %q, want %q", c.in, got, c.want)
		}
	}
	if n := len(message.ParseAddresses([]byte(strings.Repeat("a@b,", 10_000)))); n != message.MaxAddresses {
		t.Errorf("%d addresses", n)
	}
}

func TestAppendEnvelope(t *testing.T) {
	for _, c := range []struct{ header, want string }{
		{"", "(NIL NIL NIL NIL NIL NIL NIL NIL NIL NIL)"},
		{"Date: Fri, 20 Nov 2026 10:00:00 +0000\nFrom: A <a@b>\nReply-To: r@b\nTo: b@c,\n \"D, E\" <d@e>\nCc:\nSubject: one\n two\nMessage-ID: <1@b>\nIn-Reply-To: <0@b>\n",
			`("Fri, 20 Nov 2026 10:00:00 +0000" "one two" (("A" NIL "a" "b")) (("A" NIL "a" "b")) ((NIL NIL "r" "b")) ((NIL NIL "b" "c")("D, E" NIL "d" "e")) NIL NIL "<0@b>" "<1@b>")`},
		{"To: Team: a@b;, c\nSubject:\n", `(NIL "" NIL NIL NIL ((NIL NIL "Team" NIL)(NIL NIL "a" "b")(NIL NIL NIL NIL)(NIL NIL "c" "")) NIL NIL NIL NIL)`},
		{"Cc: a@b\nCC: c@d\n", `(NIL NIL NIL NIL NIL NIL ((NIL NIL "a" "b")(NIL NIL "c" "d")) NIL NIL NIL)`},
		{"Subject: \"q\" \\ \n", `(NIL "\"q\" \\" NIL NIL NIL NIL NIL NIL NIL NIL)`},
		{"Subject: \xe4\x00b\n", "(NIL {2}\r\n\xe4b NIL NIL NIL NIL NIL NIL NIL NIL)"},
		{"Subject: =?utf-8?q?=C3=A4?=\n", `(NIL "=?utf-8?q?=C3=A4?=" NIL NIL NIL NIL NIL NIL NIL NIL)`},
	} {
		want := strings.ReplaceAll(c.want, ` \\"`, ` \\\\"`)
		want = strings.ReplaceAll(want, ` \\\\"`, ` \\"`)
		if got := string(message.AppendEnvelope(nil, message.Header(crlf(c.header)))); got != want {
			t.Errorf("%q gave\n%s\nwant\n%s", c.header, got, want)
		}
	}
}

// What is not as AppendEnvelope writes it is no ENVELOPE.
func TestIsEnvelope(t *testing.T) {
	whole := message.AppendEnvelope(nil, message.Header(crlf("From: G: \"a\\\"b\" <a@b>, c@d;\nTo: \xe4 <@r:e@f>\nSubject: \xe4 {3}\nDate: now\n")))
	if !message.IsEnvelope(whole) {
		t.Errorf("%q is none", whole)
	}
	for n := range whole {
		if message.IsEnvelope(whole[:n]) {
			t.Errorf("%q is one", whole[:n])
		}
		spoilt := slices.Clone(whole)
		if spoilt[n] = 0; message.IsEnvelope(spoilt) {
			t.Errorf("%q is one", spoilt)
		}
	}
	if message.IsEnvelope(append(whole, ' ')) {
		t.Error("there is more after it")
	}
}

func TestEnvelope(t *testing.T) {
	e := message.Header(crlf("From: =?utf-8?q?J=C3=B6rg?= <j@b>\nTo: c@d\nSubject: =?iso-8859-1?q?Gr=FC=DFe?=\n =?iso-8859-1?q?_an_alle?=\nDate: Fri, 20 Nov 2026 10:00:00 +0100 (CET)\nMessage-ID: junk <1@b>\nIn-Reply-To: <0@b>\n")).Envelope()
	if e.Subject != "Grüße an alle" || e.From[0].Name != "Jörg" || e.Sender[0].String() != "j@b" || e.ReplyTo[0].Local != "j" ||
		e.MessageID != "<1@b>" || !reflect.DeepEqual(e.InReplyTo, []string{"<0@b>"}) || e.Date.Unix() != time.Date(2026, 11, 20, 9, 0, 0, 0, time.UTC).Unix() {
		t.Errorf("got %+v", e)
	}
}

func TestDecodeWords(t *testing.T) {
	for _, c := range []struct{ in, want string }{
		{"plain", "plain"}, {"=?utf-8?q?a_b?=", "a b"}, {"=?UTF-8?B?w6Q=?= =?utf-8?b?w7Y=?= x", "äö x"},
		{"=?utf-8?b?w?= =?utf-8?b?6Q?=", "é"}, {"=?utf-8?q?=C3?= =?utf-8?q?=A4?=", "ä"},
		{"a =?utf-8?q?b?= c", "a b c"}, {"=?utf-8*en?q?x?=", "x"}, {"=?koi8-r?b?8NLJ18XU?=", "Привет"},
		{"=?iso-2022-jp?b?GyRCRnxLXBsoQg==?=", "日本"}, {"=?unknown?q?=E4?=", "ä"}, {"=?broken", "=?broken"},
		{"=?utf-8?x?a?= =?utf-8?q?b?=", "=?utf-8?x?a?= b"}, {"gr\xfc\xdf", "grüß"}, {"=?utf-8?q?a=00b=0D=0Ac?=", "a b  c"},
		{"=?utf-8?q?a b?=", "a b"}, {"", ""},
	} {
		if got := message.DecodeWords(c.in); got != c.want {
			t.Errorf("%q gave %q, want %q", c.in, got, c.want)
		}
	}
}

func TestMessageIDs(t *testing.T) {
	if got := message.ParseMessageIDs("<a@b> junk <c @d><e<f@g> <> <h"); !reflect.DeepEqual(got, []string{"<a@b>", "<c@d>", "<f@g>"}) {
		t.Errorf("got %q", got)
	}
	var many strings.Builder
	for i := range 300 {
		fmt.Fprintf(&many, "<%d@b> ", i)
	}
	h := message.Header("References: " + many.String() + "\r\nIn-Reply-To: <last@b> <299@b>\r\n")
	if got := h.References(); len(got) != message.MaxReferences || got[len(got)-1] != "<last@b>" || got[len(got)-2] != "<299@b>" {
		t.Errorf("got %d: %q", len(got), got[len(got)-3:])
	}
}

// A zone's name that is known where the node stands means no more there than elsewhere.
func TestParseDateWhereverItIs(t *testing.T) {
	here := time.Local
	t.Cleanup(func() { time.Local = here })
	time.Local = time.FixedZone("BST", 3600)
	for s, hour := range map[string]int{
		"Fri, 20 Nov 2026 09:05:06 BST": 9, "20 Nov 26 09:05:06 BST": 9, "Fri Nov 20 09:05:06 BST 2026": 9,
		"Fri, 20 Nov 2026 09:05:06 BST (British Summer Time)": 9, "Friday, 20 Nov 2026 09:05:06 BST": 9,
		"Fri, 20 Nov 2026 09:05:06 +0100 (BST)": 8, "20 Nov 2026 09:05:06 +0100": 8, "Fri, 20 Nov 2026 09:05:06 GMT": 9,
	} {
		if got, ok := message.ParseDate(s); !ok || !got.Equal(time.Date(2026, 11, 20, hour, 5, 6, 0, time.UTC)) {
			t.Errorf("%q gave %v, %v", s, got, ok)
		}
	}
}

func TestParseDate(t *testing.T) {
	want := time.Date(2026, 11, 20, 9, 5, 6, 0, time.UTC)
	for _, s := range []string{
		"Fri, 20 Nov 2026 10:05:06 +0100", "20 Nov 2026 09:05:06 GMT", "Fri, 20 Nov 2026 09:05:06 UTC", "Fri, 20 Nov 2026 09:05:06 Z",
		"Fri,  20 Nov 2026 10:05:06 +0100 (CET)", "20 Nov 26 09:05:06 GMT", "Friday, 20 Nov 2026 10:05:06 +0100",
		"Fri Nov 20 09:05:06 2026", "2026-11-20T09:05:06Z", "Fri, 20 Nov 2026 10:05:06 +01:00", "Fri, 20 Nov 2026 10:05:06 +0100 (Mitteleuropäische Zeit)",
		"Fri Nov 20 10:05:06 2026 +0100", "Fri, 20 Nov 2026 09:05:06", "Fri, 20 Nov 2026 09:05:06 XYZ",
		"Fri, 20 Nov 2026 04:05:06 EST", "20 Nov 26 02:05:06 PDT", "Fri Nov 20 03:05:06 CST 2026",
		"Fri, 20 Nov 2026 10:05:06 MET", "20 Nov 26 11:05:06 CEST", "Fri Nov 20 12:05:06 MSK 2026", "Fri, 20 Nov 2026 10:05:06 CET (Mitteleuropäische Zeit)",
	} {
		if got, ok := message.ParseDate(s); !ok || !got.Equal(want) {
			t.Errorf("%q gave %v, %v", s, got, ok)
		}
	}
	// Of what makes no sense the rest counts (RFC 5256 §2.2).
	day := time.Date(2026, 11, 20, 0, 0, 0, 0, time.UTC)
	for s, want := range map[string]time.Time{
		"Fri, 20 Nov 2026 09:05:06 +9999": want, "20 Nov 2026 09:05:06 Local Time": want,
		"Fri, 20 Nov 2026 24:05:06 +0100": day, "20 Nov 2026": day,
	} {
		if got, ok := message.ParseDate(s); !ok || !got.Equal(want) {
			t.Errorf("%q gave %v, %v", s, got, ok)
		}
	}
	// Three digits of a year count from 1900 (RFC 5322 §4.3).
	if got, ok := message.ParseDate("Fri, 20 Nov 126 10:05:06 +0100"); !ok || !got.Equal(want) {
		t.Errorf("a year of three digits gave %v, %v", got, ok)
	}
	// The start of 1970, where a clock that was never set stands.
	if got, ok := message.ParseDate("Wed, 31 Dec 1969 19:00:00 -0500"); !ok || got.Unix() != 0 || got.Year() != 1969 {
		t.Errorf("the start of 1970 gave %v, %v", got, ok)
	}
	for _, s := range []string{"", "yesterday", "Fri, 99 Nov 2026 10:05:06 +0100", "1 Jan 0001 00:00:00 +0000", strings.Repeat("x", 10_000)} {
		if got, ok := message.ParseDate(s); ok {
			t.Errorf("%q gave %v", s, got)
		}
	}
}
