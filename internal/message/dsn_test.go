// SPDX-License-Identifier: Apache-2.0

package message_test

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/mailstead/mailstead/internal/message"
)

func report(recipients ...message.DSNRecipient) *message.DSN {
	return &message.DSN{
		Host: "mail.host.test", To: message.Address{Local: "ann", Domain: "demo.test"},
		Date: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC), MessageID: "<r1@mail.host.test>",
		ArrivedAt:  time.Date(2026, 3, 1, 8, 0, 0, 0, time.UTC),
		Recipients: recipients, Boundary: func() string { return "edge" },
		Original: message.Original{Header: message.Header("Subject: =?utf-8?q?Gr=C3=BC=C3=9Fe?=\r\nMessage-ID: <m1@demo.test>\r\nReferences: <m0@demo.test>\r\n\r\n")},
	}
}

func written(t testing.TB, r *message.DSN) string {
	t.Helper()
	var b bytes.Buffer
	if err := r.Write(&b); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

const lateReport = `Date: Sun, 1 Mar 2026 12:00:00 +0000
From: Mail Delivery System <MAILER-DAEMON@mail.host.test>
To: ann@demo.test
Subject: =?utf-8?b?RGVsYXllZDogR3LDvMOfZQ==?=
Message-ID: <r1@mail.host.test>
In-Reply-To: <m1@demo.test>
References: <m0@demo.test> <m1@demo.test>
Auto-Submitted: auto-replied
MIME-Version: 1.0
Content-Type: multipart/report; report-type=delivery-status;
 boundary="edge"

--edge
Content-Type: text/plain; charset=utf-8
Content-Transfer-Encoding: quoted-printable

This is the mail service at mail.host.test.

Your message has not been delivered yet to:

  bob@far.example
    The recipient's server asked for it to be tried again later.
    The next try is at Sun, 1 Mar 2026 16:00 UTC.
    It is tried until Fri, 6 Mar 2026 08:00 UTC; should that not help
    you will be told.
    The server mx.far.example said: 450 4.7.1 Greylisted; wait

You need not do anything: this is to let you know, and it is being tried
further.

The message:

  Subject: Gr=C3=BC=C3=9Fe
  Handed in: Sun, 1 Mar 2026 08:00 UTC
  Message-ID: <m1@demo.test>

--edge
Content-Type: message/delivery-status

Reporting-MTA: dns; mail.host.test
Arrival-Date: Sun, 1 Mar 2026 08:00:00 +0000

Final-Recipient: rfc822; bob@far.example
Action: delayed
Status: 4.7.1
Remote-MTA: dns; mx.far.example
Diagnostic-Code: smtp; 450 4.7.1 Greylisted; wait
Will-Retry-Until: Fri, 6 Mar 2026 08:00:00 +0000

--edge
Content-Type: text/rfc822-headers
Content-Transfer-Encoding: 7bit

Subject: =?utf-8?q?Gr=C3=BC=C3=9Fe?=
Message-ID: <m1@demo.test>
References: <m0@demo.test>


--edge--
`

func TestReport(t *testing.T) {
	at := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	late := message.DSNRecipient{
		Recipient: "bob@far.example", Action: message.ActionDelayed, Code: 450, Enhanced: "4.7.1", Reply: "Greylisted; wait",
		Remote: "mx.far.example", AttemptedAt: at, NextAttempt: at.Add(4 * time.Hour), RetryUntil: at.Add(116 * time.Hour),
	}
	if got, want := written(t, report(late)), strings.ReplaceAll(lateReport, "\n", "\r\n"); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func TestReportStatus(t *testing.T) {
	for what, c := range map[string]struct {
		r    message.DSNRecipient
		want []string
		not  []string
	}{
		"no code": {message.DSNRecipient{Action: message.ActionFailed, Code: 550, Reply: "no"}, []string{"Status: 5.0.0\r\n", "smtp; 550 no\r\n"}, nil},
		"a code of another class": {message.DSNRecipient{Action: message.ActionFailed, Code: 550, Enhanced: "2.1.1", Reply: "no"},
			[]string{"Status: 5.0.0\r\n"}, nil},
		"no code at all": {message.DSNRecipient{Action: message.ActionFailed, Enhanced: "5.x\r\nBcc: a", Reply: "no"}, []string{"Status: 5.0.0\r\n"}, []string{"\r\nBcc"}},
		"ours":           {message.DSNRecipient{Action: message.ActionFailed, Enhanced: "5.1.2", Reply: "there is no such domain"}, []string{"X-Mailstead; there is no such domain", "Status: 5.1.2"}, []string{"Remote-MTA"}},
		"8BITMIME": {message.DSNRecipient{Action: message.ActionFailed, Enhanced: "5.6.3", Reply: "the message needs 8BITMIME, which relay.a.test does not offer", Remote: "relay.a.test"},
			[]string{"Status: 5.6.3\r\n", "Diagnostic-Code: X-Mailstead; the message needs 8BITMIME, ", "next mail host", "In detail: the message needs"}, []string{"Remote-MTA", "recipient's server", "said:"}},
		"SMTPUTF8": {message.DSNRecipient{Action: message.ActionFailed, Enhanced: "5.6.7", Reply: "the message needs SMTPUTF8, which relay.a.test does not offer", Remote: "relay.a.test"},
			[]string{"Status: 5.6.7\r\n", "X-Mailstead; the", "next mail host"}, []string{"Remote-MTA", "recipient", "said:"}},
		"SMTPUTF8, says the host": {message.DSNRecipient{Action: message.ActionFailed, Code: 553, Enhanced: "5.6.7", Reply: "no SMTPUTF8", Remote: "relay.a.test"},
			[]string{"Remote-MTA: dns; relay.a.test\r\n", "smtp; 553 5.6.7 no SMTPUTF8", "said: 553"}, []string{"next mail host"}},
		"SIZE": {message.DSNRecipient{Action: message.ActionFailed, Enhanced: "5.3.4", Reply: "the message has 2 octets, and relay.a.test takes 1", Remote: "relay.a.test"},
			[]string{"next mail host"}, []string{"Remote-MTA", "recipient's"}},
		"refused here": {message.DSNRecipient{Action: message.ActionFailed, Code: 550, Enhanced: "5.7.1", Reply: "The filter does not let it in.", Remote: "local"},
			[]string{"X-Mailstead; 550 5.7.1 The filter", "This service does not", "In detail: The filter"}, []string{"Remote-MTA", "recipient's server", "The server"}},
		"expired": {message.DSNRecipient{Action: message.ActionFailed, Code: 451, Enhanced: "4.4.7", Reply: "in time; the last answer was: busy", Remote: "mx.a.test"},
			[]string{"Status: 4.4.7", "X-Mailstead; in time; the last answer was: busy", "Remote-MTA: dns; mx.a.test"}, nil},
		"filed":   {message.DSNRecipient{Action: message.ActionDelivered, Code: 250, Enhanced: "2.1.5", Reply: "ok", Remote: "local"}, []string{"Action: delivered", "Status: 2.1.5", "Subject: =?utf-8?b?RGVsaXZlcmVk"}, []string{"Remote-MTA"}},
		"relayed": {message.DSNRecipient{Action: message.ActionRelayed, Code: 250, Enhanced: "4.0.0", Reply: "ok", Remote: "mx.a.test"}, []string{"Action: relayed", "Status: 2.0.0", "Remote-MTA: dns; mx.a.test", "Those servers send no"}, nil},
		"original": {message.DSNRecipient{Action: message.ActionFailed, Original: "rfc822;list@a.test"}, []string{"Original-Recipient: rfc822; list@a.test\r\nFinal-Recipient: rfc822; bob@b.test\r\n"},
			nil},
		"hostile": {message.DSNRecipient{Action: message.ActionFailed, Code: 550, Enhanced: "5.7.1", Reply: "a\r\n\r\n--edge\r\nX: \x00\x1b[2J \xff", Remote: "mx.a\r\nX: y"},
			[]string{"smtp; 550 5.7.1 a --edge X: [2J ?"}, []string{"\n--edge\r\nX", "\nX:", "\x00", "\x1b", "\xff"}},
	} {
		c.r.Recipient = "bob@b.test"
		got := written(t, report(c.r))
		for _, w := range c.want {
			if !strings.Contains(got, w) {
				t.Errorf("%s: lacks %q:\n%s", what, w, got)
			}
		}
		for _, w := range c.not {
			if strings.Contains(got, w) {
				t.Errorf("%s: has %q:\n%s", what, w, got)
			}
		}
	}
}

// With an address that is not ASCII, the report uses the forms of RFC 6533.
func TestReportInternational(t *testing.T) {
	r := report(message.DSNRecipient{Recipient: "björn@far.example", Original: "utf-8;bjørn@far.example", Action: message.ActionFailed, Code: 550, Enhanced: "5.1.1", Reply: "нет"})
	r.Original.UTF8 = true
	r.Original.Open = func() (io.ReadCloser, error) {
		return io.NopCloser(strings.NewReader("Subject: Grüße\r\n\r\nhi\r\n")), nil
	}
	got := written(t, r)
	for _, want := range []string{
		"Content-Transfer-Encoding: 8bit\r\nContent-Type: multipart/report", "Content-Type: message/global-delivery-status\r\nContent-Transfer-Encoding: 8bit\r\n",
		"Original-Recipient: utf-8; bjørn@far.example\r\nFinal-Recipient: utf-8; björn@far.example\r\n", "550 5.1.1 нет\r\n",
		"Content-Type: message/global\r\nContent-Transfer-Encoding: 8bit\r\n\r\nSubject: Grüße\r\n\r\nhi\r\n",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("lacks %q:\n%s", want, got)
		}
	}
	r.Original.Open = nil
	if got := written(t, r); !strings.Contains(got, "Content-Type: message/global-headers\r\n") {
		t.Errorf("the header goes as\n%s", got)
	}
	r.Original.Header = message.Header("Subject: Gr\xfc\xdfe\r\n\r\n")
	if got := written(t, r); !strings.Contains(got, "Content-Type: text/rfc822-headers\r\nContent-Transfer-Encoding: 8bit\r\n") {
		t.Errorf("a header in another charset goes as\n%s", got)
	}
}

func TestReportOfMany(t *testing.T) {
	r := report(message.DSNRecipient{Recipient: "a@b.test", Action: message.ActionRelayed}, message.DSNRecipient{Recipient: "c@b.test", Action: message.ActionDelayed},
		message.DSNRecipient{Recipient: "d@b.test", Action: message.ActionFailed}, message.DSNRecipient{Recipient: "e@b.test", Action: message.ActionFailed})
	r.EnvID = "order 7"
	r.Original.Header = nil
	got := written(t, r)
	for _, want := range []string{"Subject: Undelivered mail\r\n", "could not be delivered to these recipients:", "has not been delivered yet to:", "Original-Envelope-Id: order 7\r\n"} {
		if !strings.Contains(got, want) {
			t.Errorf("lacks %q:\n%s", want, got)
		}
	}
	if strings.Contains(got, "rfc822-headers") || strings.Contains(got, "In-Reply-To") {
		t.Errorf("quotes what is not there:\n%s", got)
	}
	if n := len(message.Scan([]byte(got)).Parts); n != 3 {
		t.Errorf("%d parts", n)
	}
}

func TestReportErrors(t *testing.T) {
	r := report(message.DSNRecipient{Recipient: "a@b.test", Action: message.ActionFailed})
	gone := errors.New("gone")
	r.Original.Open = func() (io.ReadCloser, error) { return nil, gone }
	if err := r.Write(io.Discard); !errors.Is(err, gone) {
		t.Error(err)
	}
}

// For any reply of a host, a report is one mail of three parts with lines that every host accepts,
// and has no fields that we didn't write.
func FuzzReport(f *testing.F) {
	f.Add("bob@far.example", "rfc822;a@b", "5.1.1", "no such user", "mx.far.example", "Subject: x\r\nMessage-ID: <a@b>\r\n\r\n", uint8(0))
	f.Add("b\u00f6b@far.example", "utf-8;\u00f6@b", "", "\r\n.\r\n\xff\xfe --edge--", "local", "", uint8(1))
	f.Add("\"a b\"@x", ";", "4.4.7", strings.Repeat("x", 3000), "a.b\r\nc", "References: <"+strings.Repeat("a", 2000)+">\r\n", uint8(2))
	f.Fuzz(func(t *testing.T, rcpt, orcpt, enhanced, reply, remote, header string, action uint8) {
		actions := []string{message.ActionFailed, message.ActionDelayed, message.ActionDelivered, message.ActionRelayed}
		r := report(message.DSNRecipient{Recipient: rcpt, Original: orcpt, Enhanced: enhanced, Reply: reply, Remote: remote, Code: int(action), Action: actions[action%4]})
		r.EnvID = reply
		h, _, _ := strings.Cut(header, "\r\n\r\n")
		r.Original.Header = message.Header(strings.ReplaceAll(h, "edge", "") + "\r\n\r\n")
		got := written(t, r)
		ix := message.Scan([]byte(got))
		if len(ix.Parts) != 4 {
			t.Fatalf("%d parts:\n%s", len(ix.Parts), got)
		}
		own, rest, _ := strings.Cut(got, "\r\n\r\n")
		for name, n := range map[string]int{"Subject": 1, "Bcc": 0, "To": 1, "From": 1, "Auto-Submitted": 1} {
			if c := message.Header(own + "\r\n\r\n").Count(name); c != n {
				t.Errorf("%d fields %s:\n%s", c, name, own)
			}
		}
		status, _, _ := strings.Cut(rest[strings.Index(rest, "delivery-status\r\n"):], "\r\n--edge")
		for _, line := range strings.Split(own+"\r\n"+status, "\r\n") {
			if len(line) > 998 || strings.ContainsAny(line, "\r\n\x00") {
				t.Fatalf("a line of %d octets: %q", len(line), line)
			}
		}
	})
}

// Reports to other hosts are 7-bit, for any message.
func TestReportSevenBit(t *testing.T) {
	for what, o := range map[string]message.Original{
		"8-bit body":   {Header: message.Header("Subject: x\r\n\r\n"), EightBit: true, Open: content("Subject: x\r\n\r\nGr\xc3\xbc\xc3\x9fe\r\n")},
		"8-bit header": {Header: message.Header("Subject: Gr\xfc\xdfe\r\nTo: j\xc3\xb6rg@x.test\r\n\r\n"), UTF8: true, Open: content("Subject: x\r\n\r\n")},
		"both":         {Header: message.Header("Subject: Grüße\r\nReceived: by ä\r\nX\xe4 y\r\n\r\n"), UTF8: true, EightBit: true},
	} {
		r := report(message.DSNRecipient{Recipient: "bob@far.example", Action: message.ActionFailed, Code: 550, Enhanced: "5.1.1", Remote: "192.0.2.1", Reply: "nö"})
		r.Original, r.SevenBit = o, true
		text := written(t, r)
		for i := range len(text) {
			if text[i] >= 0x80 {
				t.Errorf("%s: it is 8-bit:\n%s", what, text)
				break
			}
		}
		if !strings.Contains(text, "Content-Type: text/rfc822-headers\r\nContent-Transfer-Encoding: 7bit\r\n") || strings.Contains(text, "8bit") || !strings.Contains(text, "Remote-MTA: dns; [192.0.2.1]\r\n") {
			t.Errorf("%s:\n%s", what, text)
		}
		if what != "8-bit body" && !strings.Contains(text, "\r\nSubject: =?utf-8?b?R3LDvMOfZQ==?=\r\n") {
			t.Errorf("%s has no subject:\n%s", what, text)
		}
	}
	utf8 := report(message.DSNRecipient{Recipient: "bj+örn@far.example", Original: "utf-8;bjørn@far.example", Action: message.ActionFailed, Code: 550, Enhanced: "5.1.1", Reply: "нет"})
	utf8.SevenBit, utf8.Original.Header = true, message.Header("Subject: x\r\nX-Long: "+strings.Repeat("x ", 600)+"\r\n\r\n")
	text := written(t, utf8)
	if !strings.Contains(text, "message/delivery-status\r\n") || !strings.Contains(text, "Original-Recipient: utf-8; bj\\x{F8}rn@far.example\r\nFinal-Recipient: utf-8; bj\\x{2B}\\x{F6}rn@far.example\r\n") || strings.Contains(text, "8bit") {
		t.Errorf("a report about an address that is not ASCII:\n%s", text)
	}
	if ix := message.Scan([]byte(text)); ix.Has(message.EightBit | message.HeaderEightBit | message.LongLines) {
		t.Errorf("it is not 7-bit:\n%s", text)
	}
	whole := report(message.DSNRecipient{Recipient: "bob@far.example", Action: message.ActionFailed})
	whole.Original.Open, whole.SevenBit = content("Subject: x\r\n\r\nHi\r\n"), true
	if text := written(t, whole); !strings.Contains(text, "message/rfc822\r\n") || !strings.Contains(text, "\r\n\r\nHi\r\n") {
		t.Errorf("a 7-bit one goes back whole:\n%s", text)
	}
	if text := written(t, report(message.DSNRecipient{Recipient: "a@b.example", Action: message.ActionDelivered}, message.DSNRecipient{Recipient: "c@b.example", Action: message.ActionRelayed})); !strings.Contains(text, "Subject: =?utf-8?q?Relayed") && !strings.Contains(text, "Subject: =?utf-8?b?UmVsYXllZD") {
		t.Errorf("the subject of what was relayed:\n%s", text)
	}
}
