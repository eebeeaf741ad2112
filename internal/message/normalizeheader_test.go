// SPDX-License-Identifier: Apache-2.0

package message_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/message"
)

// The header of a message from its author is corrected where other hosts would reject it or parse
// it differently. A header without a clear meaning is rejected.
func TestMendHeader(t *testing.T) {
	long := strings.Repeat("wort ", 300) + "Ende"
	many := strings.TrimSuffix(strings.Repeat("ann@a.test,", 120), ",")
	for what, c := range map[string]struct{ charset, header, want string }{
		"nothing to do":           {"", "Subject: Hi  there\nTo: a@b.test (x)\nX: \n", "Subject: Hi  there\nTo: a@b.test (x)\nX: \n"},
		"UTF-8":                   {"", "Subject: Grüße an alle\n", "Subject: =?utf-8?b?R3LDvMOfZSBhbiBhbGxl?=\n"},
		"Latin-1":                 {"", "Subject: Gr\xfc\xdfe\n", "Subject: =?utf-8?b?R3LDvMOfZQ==?=\n"},
		"windows-1252":            {"", "Subject: \x9332 \x80\x94\n", "Subject: =?utf-8?b?4oCcMzIg4oKs4oCd?=\n"},
		"the charset of the text": {"koi8-r", "Subject: \xf0\xd2\xc9\xd7\xc5\xd4\n", "Subject: =?utf-8?b?0J/RgNC40LLQtdGC?=\n"},
		"beside encoded words":    {"", "Subject: Grüße, =?utf-8?q?J=C3=B6rg?=\n", "Subject: =?utf-8?b?R3LDvMOfZSwgSsO2cmc=?=\n"},
		"a folded subject":        {"", "Subject: Viele\n Grüße\n", "Subject: =?utf-8?b?VmllbGUgR3LDvMOfZQ==?=\n"},
		"a field nobody knows":    {"", "X-Note: ä\n", "X-Note: =?utf-8?b?w6Q=?=\n"},
		"names":                   {"", "To: Jörg Müller <j@a.test>, \"Ö, Ä\" <o@a.test>, c@a.test\n", "To: =?utf-8?b?SsO2cmcgTcO8bGxlcg==?= <j@a.test>, =?utf-8?b?w5YsIMOE?=\n <o@a.test>, c@a.test\n"},
		"a name in pieces":        {"", "To: Jörg \"M.\" =?utf-8?q?=C3=9C?= <j@a.test>\n", "To: =?utf-8?b?SsO2cmcgTS4gw5w=?= <j@a.test>\n"},
		"a comment":               {"", "From: j@a.test (Jörg)\n", "From: j@a.test ( =?utf-8?b?SsO2cmc=?=)\n"},
		"a group":                 {"", "To: Freunde für immer: a@a.test, Jörg <j@a.test>;\n", "To: =?utf-8?q?Freunde_f=C3=BCr_immer?=: a@a.test, =?utf-8?b?SsO2cmc=?=\n <j@a.test>;\n"},
		"a domain":                {"", "To: Jörg <j@bücher.test>\n", "To: =?utf-8?b?SsO2cmc=?= <j@xn--bcher-kva.test>\n"},
		"an address in UTF-8":     {"", "To: Jörg <jörg@a.test>, ö@a.test\n", "To: =?utf-8?b?SsO2cmc=?= <jörg@a.test>, ö@a.test\n"},
		"a quoted local part":     {"", "To: \"a b\"@a.test, \"ä b\"@a.test\n", "To: \"a b\"@a.test, \"ä b\"@a.test\n"},
		"a file name":             {"", "Content-Disposition: attachment; filename=Maß.txt\n", "Content-Disposition: attachment; filename=\"Mass.txt\";\n filename*=utf-8''Ma%C3%9F.txt\n"},
		"a parameter":             {"", "Content-Type: text/plain; charset=utf-8; title=\"Maß\"; x=\"a b\"\n", "Content-Type: text/plain; charset=utf-8; title*=utf-8''Ma%C3%9F; x=\"a b\"\n"},
		"what machines read":      {"", "Received: by a (ä)\nReferences: <a@b> <ä@b>\n <c@d>\n", "Received: by a (?)\nReferences: <a@b> <c@d>\n"},
		"a long line":             {"", "Subject: " + long + "\n", ""},
		"a long word":             {"", "Subject: " + strings.Repeat("x", 1500) + "\n", ""},
		"a long list":             {"", "To: " + many + "\n", ""},
		"a long line of machines": {"", "DKIM-Signature: v=1; b=" + strings.Repeat("x", 700) + " " + strings.Repeat("y", 700) + "\n", ""},
		"an mbox's line":          {"", "From ann@a.test Thu Nov 26 10:00:00 2026\nSubject: x\n", "Subject: x\n"},
		"the same twice":          {"", "Subject: x\nMIME-Version: 1.0\nsubject:  x\nMIME-Version: 1.0\n", "Subject: x\nMIME-Version: 1.0\n"},
		"lists in two fields":     {"", "To: a@a.test\nX: y\nto: b@a.test\nCc:\nCc: c@a.test\n", "To: a@a.test,\n b@a.test\nX: y\nCc: c@a.test\n"},
		"references in two":       {"", "References: <a@a>\nReferences: <b@a>\n", "References: <a@a>\n <b@a>\n"},
		"an unreadable date":      {"", "Date: yesterday\nSubject: x\n", "Subject: x\n"},
		"an empty date":           {"", "Date:\nSubject: x\n", "Subject: x\n"},
		"a date":                  {"", "Date: 26 Nov 26 10:00 EST\n", "Date: 26 Nov 26 10:00 EST\n"},
		"an empty Message-ID":     {"", "Message-ID: \nSubject: x\n", "Subject: x\n"},
		"a bare Message-ID":       {"", "Message-ID: a@b\nSubject: x\n", "Subject: x\n"},
		"two Message-IDs in one":  {"", "Message-ID: <a@b> <c@d>\nSubject: x\n", "Subject: x\n"},
		"a Message-ID in UTF-8":   {"", "Message-ID: <ä@b>\nSubject: x\n", "Subject: x\n"},
	} {
		got, err := message.NormalizeHeader(message.Header(crlf(c.header)+"\r\n"), c.charset)
		if err != nil {
			t.Errorf("%s: %v", what, err)
			continue
		}
		if c.want != "" && string(got) != crlf(c.want)+"\r\n" {
			t.Errorf("%s:\n%q\nwant\n%q", what, got, crlf(c.want)+"\r\n")
		}
		sound(t, message.Header(crlf(c.header)), got)
	}
	for what, c := range map[string]struct{ header, code string }{
		"two subjects":      {"Subject: a\nSubject: b\n", "invalid_header"},
		"two dates":         {"Date: Thu, 26 Nov 2026 10:00:00 +0000\nDate: Thu, 26 Nov 2026 11:00:00 +0000\n", "invalid_header"},
		"two types":         {"Content-Type: text/plain\nContent-Type: text/html\n", "invalid_header"},
		"two ids":           {"Message-ID: <a@b>\nMessage-ID: <b@b>\n", "invalid_header"},
		"no colon":          {"Subject: a\nhello\nTo: x@y.test\n", "invalid_header"},
		"From_ in between":  {"Subject: a\nFrom x y\n", "invalid_header"},
		"a signature's tag": {"DKIM-Signature: v=1; b=" + strings.Repeat("x", 1500) + "\n", "line_too_long"},
	} {
		_, err := message.NormalizeHeader(message.Header(crlf(c.header)), "")
		var f *fault.Error
		if !errors.As(err, &f) || f.Kind != fault.Invalid || f.Code != c.code {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// sound checks the properties of every normalized header.
func sound(t *testing.T, before, after message.Header) {
	t.Helper()
	for line := range strings.SplitSeq(string(after), "\r\n") {
		if len(line) > 998 || line != "" && strings.TrimSpace(line) == "" {
			t.Errorf("a line of %d octets: %q", len(line), line)
		}
	}
	again, err := message.NormalizeHeader(after, "")
	if err != nil || string(again) != string(after) {
		t.Errorf("mended again\n%q\nis\n%q, %v", after, again, err)
	}
	for _, name := range []string{"From", "To", "Cc"} {
		was, is := before.Addresses(name), after.Addresses(name)
		if len(was) != len(is) {
			t.Errorf("%s was %v, is %v", name, was, is)
		}
	}
	addresses := func(f message.Field) bool { return slices.ContainsFunc([]string{"To", "From", "Cc"}, f.Is) }
	if after.WithoutFieldsFunc(addresses).EightBit() {
		t.Errorf("it has bytes above 127: %q", after)
	}
}

func FuzzMendHeader(f *testing.F) {
	for _, s := range []string{"Subject: Gr\xfc\xdfe", "To: J\xf6rg \"x\" (y) <a@b>, g: c@d;", "To: \"\\", "Content-Type: text/plain; name=\"\xe4", "References: <\xe4@b", "X:" + strings.Repeat(" x", 600)} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		h := message.Header(strings.ReplaceAll(strings.NewReplacer("\r", "", "\x00", "").Replace(s), "\n", "\r\n") + "\r\n")
		got, err := message.NormalizeHeader(h, "")
		if err != nil {
			return
		}
		again, err := message.NormalizeHeader(got, "")
		if err != nil || string(again) != string(got) {
			t.Errorf("%q becomes\n%q, then\n%q, %v", h, got, again, err)
		}
		if subject := h.Decoded("Subject"); len(subject) < 1000 && strings.Join(strings.Fields(got.Decoded("Subject")), " ") != strings.Join(strings.Fields(subject), " ") {
			t.Errorf("the subject %q becomes %q", subject, got.Decoded("Subject"))
		}
	})
}
