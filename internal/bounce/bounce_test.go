// SPDX-License-Identifier: Apache-2.0

package bounce_test

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/mailstead/mailstead/internal/bounce"
	"github.com/mailstead/mailstead/internal/message"
)

// samples returns sample messages of many kinds of hosts. The first line of each file has the
// expected result.
func samples(t testing.TB) map[string][]byte {
	t.Helper()
	names, err := filepath.Glob("testdata/mta/*.eml")
	if err != nil || len(names) == 0 {
		t.Fatal("no samples", err)
	}
	all := map[string][]byte{}
	for _, name := range names {
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		all[strings.TrimSuffix(filepath.Base(name), ".eml")] = b
	}
	return all
}

func expectation(t testing.TB, sample []byte) (want string, mail []byte) {
	line, rest, _ := bytes.Cut(sample, []byte("\n"))
	want, ok := strings.CutPrefix(string(line), "Expect: ")
	if !ok {
		t.Fatalf("no expectation: %q", line)
	}
	return want, rest
}

func told(r *bounce.Report) string {
	switch r.Kind {
	case bounce.Failure:
		var all []string
		for _, to := range r.Recipients {
			all = append(all, fmt.Sprintf("%s %s %d %s %s", to.Type, to.Subtype, to.Code, cmp.Or(to.Enhanced, "-"), cmp.Or(to.Address, "-")))
		}
		return "failure " + strings.Join(all, " | ")
	case bounce.Complaint, bounce.FeedbackNotice:
		to := "-"
		if len(r.Recipients) > 0 {
			to = r.Recipients[0].Address
		}
		return fmt.Sprintf("%s %s %s", r.Kind, r.Feedback.Type, to)
	}
	return string(r.Kind)
}

func TestSamples(t *testing.T) {
	for name, sample := range samples(t) {
		t.Run(name, func(t *testing.T) {
			want, mail := expectation(t, sample)
			for ends, mail := range map[string][]byte{
				"LF": mail, "CRLF": bytes.ReplaceAll(mail, []byte("\n"), []byte("\r\n")), "CR": bytes.ReplaceAll(mail, []byte("\n"), []byte("\r")),
			} {
				r := bounce.Parse(mail)
				if got := told(r); got != want {
					t.Errorf("%s: got  %s\nwant %s", ends, got, want)
				}
				if bytes.Contains(mail, []byte("order-7@")) && r.Kind != bounce.Unknown && r.Original.MessageID() != "<order-7@shop.example>" {
					t.Errorf("%s: the original is %q", ends, r.Original)
				}
			}
		})
	}
}

// Reports written by this service are understood.
func TestOwnReports(t *testing.T) {
	for action, want := range map[string]string{
		message.ActionFailed: "failure Permanent NoMailbox 550 5.1.1 gone@example.org", message.ActionDelayed: "delay",
		message.ActionDelivered: "success", message.ActionRelayed: "success",
	} {
		report := message.DSN{
			Host: "mail.host.test", To: message.Address{Local: "shop", Domain: "shop.example"}, Date: time.Unix(0, 0), MessageID: "<r@mail.host.test>",
			Recipients: []message.DSNRecipient{{Recipient: "gone@example.org", Action: action, Code: 550, Enhanced: "5.1.1", Reply: "no such user", Remote: "in.example.org"}},
			Original:   message.Original{Header: message.Header("Message-ID: <order-7@shop.example>\r\nSubject: blocked spam\r\n")},
		}
		var b bytes.Buffer
		if err := report.Write(&b); err != nil {
			t.Fatal(err)
		}
		r, err := bounce.Read(&b)
		if err != nil || told(r) != want || r.Original.MessageID() != "<order-7@shop.example>" {
			t.Errorf("%s: %v, %s\nwant %s", action, err, told(r), want)
		}
	}
}

func TestClassify(t *testing.T) {
	for _, c := range []struct {
		answer   bounce.Reply
		subtype  string
		suppress bool
	}{
		{bounce.Reply{Stage: "rcpt", Code: 550, Text: "No such user here"}, bounce.NoMailbox, true},
		{bounce.Reply{Stage: "final", Code: 550, Text: "No such user here"}, bounce.Refused, false},
		{bounce.Reply{Code: 550, Text: "No such user here"}, bounce.NoMailbox, true},
		{bounce.Reply{Text: "No such user here"}, bounce.NoMailbox, true},
		{bounce.Reply{Code: 550, Enhanced: "5.1.1", Text: "mailbox is full"}, bounce.MailboxFull, false},
		{bounce.Reply{Code: 550, Enhanced: "5.2.1", Text: "no"}, bounce.MailboxDisabled, true},
		{bounce.Reply{Code: 450, Enhanced: "4.2.1", Text: "try later"}, bounce.MailboxDisabled, false},
		{bounce.Reply{Stage: "rcpt", Code: 550, Text: "the domain of the sender does not exist"}, bounce.SenderRejected, false},
		{bounce.Reply{Code: 550, Enhanced: "5.1.2"}, bounce.NoDomain, true},
		{bounce.Reply{Code: 556}, bounce.NoMail, false},
		{bounce.Reply{Code: 554, Enhanced: "5.7.1"}, bounce.Policy, false},
		{bounce.Reply{Code: 552}, bounce.MailboxFull, false},
		{bounce.Reply{}, bounce.General, false},
		{bounce.Reply{Stage: "rcpt", Code: 550, Enhanced: "5.5.0", Text: "Requested action not taken: mailbox unavailable (S2017062302)."}, bounce.NoMailbox, true},
		{bounce.Reply{Stage: "final", Code: 550, Enhanced: "5.5.0", Text: "Requested action not taken: mailbox unavailable"}, bounce.Refused, false},
		{bounce.Reply{Stage: "rcpt", Code: 550, Enhanced: "5.4.1", Text: "Recipient address rejected: Access denied. AS(201806281)"}, bounce.NoMailbox, true},
		{bounce.Reply{Stage: "rcpt", Code: 550, Enhanced: "5.4.1", Text: "no answer from host"}, bounce.Unreachable, false},
		{bounce.Reply{Stage: "rcpt", Code: 554, Enhanced: "5.7.1", Text: "<team@example.org>: Recipient address rejected: Access denied"}, bounce.Policy, false},
		// Before RCPT, the reply is about the sender.
		{bounce.Reply{Stage: "mail", Code: 550, Text: "domain not found"}, bounce.SenderRejected, false},
		{bounce.Reply{Stage: "mail", Code: 553, Enhanced: "5.1.2", Text: "no such domain"}, bounce.SenderRejected, false},
		{bounce.Reply{Stage: "mail", Code: 550, Text: "account has been suspended"}, bounce.SenderRejected, false},
		{bounce.Reply{Stage: "connect", Code: 550, Text: "unknown host"}, bounce.SenderRejected, false},
		{bounce.Reply{Stage: "connect", Code: 521}, bounce.NoMail, false},
		// Names of addresses and hosts don't count as words.
		{bounce.Reply{Stage: "rcpt", Code: 550, Enhanced: "5.1.1", Text: "<sales@relay-parts.example>... User unknown"}, bounce.NoMailbox, true},
		{bounce.Reply{Stage: "rcpt", Code: 550, Text: "<spam@example.org>: no such user"}, bounce.NoMailbox, true},
		{bounce.Reply{Stage: "rcpt", Code: 550, Enhanced: "5.1.1", Text: "host relay.example.org [2001:db8::7] said: User unknown"}, bounce.NoMailbox, true},
		{bounce.Reply{Stage: "rcpt", Code: 550, Text: "<suspend@example.org>: no"}, bounce.General, false},
		{bounce.Reply{Stage: "rcpt", Code: 550, Text: "Client host rejected: [192.0.2.1]"}, bounce.Blocked, false},
	} {
		if v := bounce.Classify(c.answer); v.Subtype != c.subtype || v.Suppress != c.suppress {
			t.Errorf("%+v: %+v", c.answer, v)
		}
	}
}

// Parsing a hostile message takes bounded time and memory.
func TestHostile(t *testing.T) {
	many := func(line string, n int) []byte { return bytes.Repeat([]byte(line), n) }
	for name, mail := range map[string][]byte{
		"a million fields":     append(many("X-A: b\r\n", 1_000_000), "\r\nuser unknown"...),
		"10,000 parts":         append([]byte("From: mailer-daemon@x.test\r\nContent-Type: multipart/report; boundary=b\r\n\r\n"), many("--b\r\n\r\n550 x\r\n", 10_000)...),
		"many groups":          append([]byte("Content-Type: message/delivery-status\r\n\r\n"), many("Final-Recipient: rfc822; a@b.c\r\nAction: failed\r\n\r\n", 20_000)...),
		"many addresses":       append([]byte("From: mailer-daemon@x.test\r\n\r\n"), many("<a@b.c>\r\n", 100_000)...),
		"one long line of @":   append([]byte("From: mailer-daemon@x.test\r\n\r\n"), many("@", 1_000_000)...),
		"one long local part":  append([]byte("From: mailer-daemon@x.test\r\n\r\n"), append(many("a", 1_000_000), "@b.c"...)...),
		"codes without end":    append([]byte("From: mailer-daemon@x.test\r\n\r\n"), many("550 5.1.1.1.", 100_000)...),
		"a page of open tags":  append([]byte("From: mailer-daemon@x.test\r\nContent-Type: text/html\r\n\r\n"), many("<style ", 100_000)...),
		"header after header":  append([]byte("From: mailer-daemon@x.test\r\n\r\n"), many("Received: from a\n\n", 50_000)...),
		"a field without end":  append([]byte("Content-Type: message/delivery-status\r\n\r\nFinal-Recipient: rfc822; a@b.c\r\nAction: failed\r\nDiagnostic-Code: x\r\n"), many(" x\r\n", 200_000)...),
		"10,000 statuses":      append([]byte("Content-Type: multipart/report; boundary=b\r\n\r\n"), many("--b\r\nContent-Type: message/delivery-status\r\n\r\nAction: failed\r\nStatus: 5.0.0\r\n", 10_000)...),
		"many and vague":       append([]byte("From: mailer-daemon@x.test\r\n\r\n"), append(many("<a@b.c>: no\r\n<b@b.c>: no\r\n", 1000), many("nothing ", 100_000)...)...),
		"many notified":        append(append([]byte("From: no-reply@sns.amazonaws.com\r\n\r\n{\"notificationType\":\"Bounce\",\"bounce\":{\"bouncedRecipients\":["), many("{\"emailAddress\":\"a@b.c\"},", 2000)...), "{}]}}"...),
		"a transcript of many": append([]byte("From: mailer-daemon@x.test\r\n\r\n   ----- Transcript of session follows -----\r\n"), many("550 <a@b.c>... no\r\n550 <b@b.c>... no\r\n", 1000)...),
		"nothing but newlines": many("\r\n", 500_000),
	} {
		t.Run(name, func(t *testing.T) {
			if r := bounce.Parse(mail); len(r.Recipients) > 100 {
				t.Errorf("%d recipients", len(r.Recipients))
			}
		})
	}
}

// endless is a reader without an end.
type endless struct{ read int }

func (e *endless) Read(p []byte) (int, error) {
	e.read += len(p)
	return len(p), nil
}

func TestReadIsBounded(t *testing.T) {
	var e endless
	if _, err := bounce.Read(&e); err != nil || e.read > 4*bounce.MaxBytes {
		t.Error(e.read, err)
	}
	if _, err := bounce.Read(io.MultiReader(strings.NewReader("From: a\r\n"), broken{})); err == nil {
		t.Error("the reader's error is lost")
	}
}

type broken struct{}

func (broken) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }

func FuzzParse(f *testing.F) {
	for _, sample := range samples(f) {
		_, mail := expectation(f, sample)
		f.Add(mail)
	}
	f.Fuzz(func(t *testing.T, mail []byte) {
		r := bounce.Parse(mail)
		if r.Kind == bounce.Failure && len(r.Recipients) == 0 {
			t.Error("a failure of nobody")
		}
		for _, to := range r.Recipients {
			if r.Kind == bounce.Failure && (to.Type == "" || to.Subtype == "" || to.Category == "") || to.Code != 0 && (to.Code < 400 || to.Code > 599) || len(to.Diagnostic) > 4<<10 {
				t.Errorf("%+v", to)
			}
		}
		if r.Kind == bounce.Complaint && r.Feedback.Type == "" {
			t.Error("a complaint of no type")
		}
	})
}

// FuzzComplaint puts arbitrary text into the parts of a feedback report.
func FuzzComplaint(f *testing.F) {
	f.Add("Feedback-Type: abuse\r\nVersion: 1\r\nOriginal-Rcpt-To: <gone@example.org>\r\nReporting-MTA: dns; mx.isp.example\r\n", "To: gone@example.org\r\nSubject: Your order\r\n")
	f.Add("Feedback-Type: not-spam (sorry)\r\nRemoval-Recipient: a@b.c\r\n", "X-HmXmrOriginalRecipient: a@b.c\r\n")
	f.Add("feedback-type:AUTH-FAILURE\n Version: 1\n\n", "")
	f.Add("", "\r\n--b\r\nContent-Type: message/delivery-status\r\n\r\nAction: failed\r\nFinal-Recipient: rfc822; a@b.c\r\n")
	f.Fuzz(func(t *testing.T, fields, original string) {
		r := bounce.Parse([]byte("From: loop@isp.example\r\nContent-Type: multipart/report; report-type=feedback-report; boundary=b\r\n\r\n" +
			"--b\r\n\r\na report\r\n--b\r\nContent-Type: message/feedback-report\r\n\r\n" + fields + "\r\n--b\r\nContent-Type: message/rfc822\r\n\r\n" + original + "\r\nHello.\r\n--b--\r\n"))
		if r.Kind != bounce.Complaint && r.Kind != bounce.FeedbackNotice {
			t.Fatalf("it is a %s", r.Kind)
		}
		if r.Feedback.Type == "" || strings.ContainsAny(r.Feedback.Type+r.Feedback.Reporter, "\r\n") || len(r.Recipients) > 1 {
			t.Fatalf("%+v %+v", r.Feedback, r.Recipients)
		}
	})
}

func FuzzClassify(f *testing.F) {
	f.Add("rcpt", 550, "5.1.1", "no such user")
	f.Add("", 0, "", "550-5.7.1 * blocked")
	f.Fuzz(func(t *testing.T, stage string, code int, enhanced, text string) {
		v := bounce.Classify(bounce.Reply{Stage: stage, Code: code, Enhanced: enhanced, Text: text})
		if v.Type == "" || v.Subtype == "" || v.Suppress && v.Category != bounce.ByRecipient {
			t.Errorf("%+v", v)
		}
	})
}
