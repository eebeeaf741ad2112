// SPDX-License-Identifier: Apache-2.0

package inbound

import (
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/mailstead/mailstead/internal/address"
	"github.com/mailstead/mailstead/internal/message"
	"github.com/mailstead/mailstead/internal/thread"
)

func TestMachine(t *testing.T) {
	for _, local := range []string{
		"MAILER-DAEMON", "Postmaster", "listserv", "majordomo", "owner-x", "x-owner", "news-request", "x-relay", "noreply", "No-Reply+7", "do_not.reply",
		"donotreply-shop", "x-bounces", "x-bounces+ann=good.com", "bounces+7-ann=good.com", "bounce-7", "root",
	} {
		if !isAutomatedLocalPart(local) {
			t.Errorf("%s is no person", local)
		}
	}
	for _, local := range []string{"ann", "request", "owner", "norel.ply", "reply", "bouncer", "ann-daemon", "SRS0=abc=ab=good.com=ann", "grassroot", "abuse7"} {
		if isAutomatedLocalPart(local) {
			t.Errorf("%s may be a person", local)
		}
	}
}

func TestSuppressedAnswers(t *testing.T) {
	from := address.Address{Local: "ann", Domain: "good.com"}
	for value, want := range map[string]bool{
		"DR, RN, NRN": true, "DR": true, "rn,nrn": true, "None": true, "": true, "DR; RN": true, "X": true,
		"All": false, "all": false, "OOF": false, "AutoReply": false, "DR, RN, NRN, OOF, AutoReply": false, "DR,OOF": false, "DR; autoreply": false,
		"OOF (we mean it)": false, "\tRN,\r\n\tOOF": false,
	} {
		if got := mayAutoReply(message.Header("From: ann@good.com\r\nX-Auto-Response-Suppress: "+value+"\r\n\r\n"), from); got != want {
			t.Errorf("%q: answered: %v", value, got)
		}
	}
}

func TestAnswerSubject(t *testing.T) {
	long := strings.Repeat("ü", 150)
	for subject, want := range map[string]string{
		"Hi": "Auto: Hi", "": "Automatic reply", "=?utf-8?q?a=0D=0Ab?=": "Auto: a  b", "=?utf-8?q?=00?=": "Automatic reply", long: "Auto: " + long[:200] + "…",
	} {
		h := message.Header("Subject: " + subject + "\r\n\r\n")
		if got := autoReplySubject("", h); got != want {
			t.Errorf("%q is answered as %q", subject, got)
		}
		if got := autoReplySubject("Away", h); got != "Away" {
			t.Errorf("%q is answered as %q", subject, got)
		}
	}
}

func TestCites(t *testing.T) {
	var before []string
	for n := range 30 {
		before = append(before, "<"+strings.Repeat("r", n+1)+"@x>")
	}
	for header, want := range map[string]struct {
		to  string
		ids []string
	}{
		"":                             {},
		"Message-ID: <a@x>\r\n":        {"<a@x>", []string{"<a@x>"}},
		"Message-ID: <a b@x>\r\n":      {"<ab@x>", []string{"<ab@x>"}},
		"In-Reply-To: <p@x>\r\n":       {"", []string{"<p@x>"}},
		"Message-ID: <\xc3\xa4@x>\r\n": {},
		"References: " + strings.Join(before, "\r\n ") + "\r\nMessage-ID: <a@x>\r\n": {
			"<a@x>", slices.Concat(before[:1], before[12:], []string{"<a@x>"})},
	} {
		to, ids := replyReferences(message.Header(header + "\r\n"))
		if to != want.to || !slices.Equal(ids, want.ids) {
			t.Errorf("%q is cited as %q, %q", header, to, ids)
		}
	}
}

// A reply is a valid message for any content that it repeats.
func FuzzAnswer(f *testing.F) {
	for _, header := range []string{
		"To: a@demo.test\r\nSubject: =?utf-8?b?Pz8/?=\r\nMessage-ID: <a@x>\r\nReferences: <b@x> <c@x>\r\n",
		"Auto-Submitted: no; x (y\r\nTo: \"a b\"@demo.test, A+x@DEMO.test\r\n", "To: g: a@demo.test;\r\nCc: <>,,\r\n", "List-Id\r\n: x\r\n",
		"To: a+\"\xff\"@demo.test\r\nMessage-ID: <\x00>\r\nSubject: \xff\r\n",
	} {
		f.Add(header)
	}
	own := map[string]bool{"a@demo.test": true}
	sender := address.Address{Local: "p", Domain: "good.com"}
	f.Fuzz(func(t *testing.T, header string) {
		h := message.Header(header)
		mayAutoReply(h, sender)
		from, ok := ownRecipient(h, own)
		if !ok {
			return
		}
		if base, _ := from.SplitTag(); base.Key() != "a@demo.test" {
			t.Fatalf("%q is not its own", from)
		}
		d := message.Draft{
			MessageID: "<x@demo.test>", From: message.Address{Local: from.Local, Domain: from.Domain}, To: []message.Address{{Local: "p", Domain: "good.com"}},
			Subject: autoReplySubject("", h), Text: "x",
		}
		d.InReplyTo, d.References = replyReferences(h)
		if len(d.References) > thread.MaxReferences || !utf8.ValidString(d.Subject) {
			t.Fatalf("%d references, subject %q", len(d.References), d.Subject)
		}
		if err := d.Check(); err != nil {
			t.Fatal(err)
		}
	})
}
