// SPDX-License-Identifier: Apache-2.0

package smtpclient

import (
	"bufio"
	"bytes"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
	"time"
	"unicode/utf8"
)

func TestReadReply(t *testing.T) {
	for _, tt := range []struct {
		in, want string
		lines    int
	}{
		{"250 ok\r\n", "250 ok", 1},
		{"250\r\n", "250 ", 1},
		{"250 \n", "250 ", 1},
		{"250-a\r\n250-b\r\n250 c\r\n", "250 a b c", 3},
		{"550-5.1.1 no such\r\n550 5.1.1 user\r\n", "550 5.1.1 no such user", 2},
		{"550 4.1.1 class differs\r\n", "550 4.1.1 class differs", 1},
		{"250 2.10.100 x\r\n", "250 2.10.100 x", 1},
		{"250 2.1000.1 x\r\n", "250 2.1000.1 x", 1},
		{"550 caf\xe9 \x00\x1b[1m\r\n", "550 caf\uFFFD   [1m", 1},
	} {
		r, err := readReply(bufio.NewReader(strings.NewReader(tt.in)))
		if err != nil || r.String() != tt.want || len(r.Lines) != tt.lines {
			t.Errorf("%q: %q, %d lines, %v", tt.in, r, len(r.Lines), err)
		}
	}
	for _, in := range []string{strings.Repeat("550-x\r\n", 5000) + "550 5.1.1 x\r\n", "550 5.1.1 " + strings.Repeat("x", 50000) + "\r\n"} {
		r, err := readReply(bufio.NewReader(strings.NewReader(in)))
		if err != nil || len(r.Text()) > 4<<10 || len(r.Lines) > 1<<10 || r.Enhanced != "5.1.1" {
			t.Errorf("of a long one %d octets in %d lines are kept, %s, %v", len(r.Text()), len(r.Lines), r.Enhanced, err)
		}
	}
	for _, in := range []string{"", "250", "25 x\r\n", "\r\n", "hello\r\n", "150 x\r\n", "600 x\r\n", "250_x\r\n", "250-a\r\n", "2500 ok\r\n"} {
		if r, err := readReply(bufio.NewReader(strings.NewReader(in))); err == nil {
			t.Errorf("%q: %q", in, r)
		}
	}
	for _, in := range []string{strings.Repeat("250-x\r\n", 20000), "250 " + strings.Repeat("x", 100000), strings.Repeat("x", 100000)} {
		if _, err := readReply(bufio.NewReader(strings.NewReader(in))); !errors.Is(err, errReplyTooLong) {
			t.Errorf("too long: %v", err)
		}
	}
}

func FuzzReply(f *testing.F) {
	for _, s := range []string{
		"220 mx.test ESMTP\r\n", "250-mx\r\n250-SIZE 10240000\r\n250-AUTH=LOGIN PLAIN\r\n250-LIMITS RCPTMAX=5 MAILMAX\r\n250 PIPELINING\r\n",
		"550 5.1.1 \xff\xfe\r\n", "421\n", "250-\r\n250 \r\n", "354 2.0.0.0 x\r\n", "250-4.5.6\r\n251 x\r\n",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		r, err := readReply(bufio.NewReaderSize(bytes.NewReader(in), 16))
		if err != nil {
			return
		}
		if r.Code < 200 || r.Code > 599 || len(r.Lines) == 0 || !utf8.ValidString(r.String()) || strings.ContainsAny(r.String(), "\r\n\x00") {
			t.Errorf("%q: %+v", in, r)
		}
		other, err := readReply(bufio.NewReader(iotest.OneByteReader(bytes.NewReader(in))))
		if err != nil || other.Code != r.Code || !slices.Equal(other.Lines, r.Lines) {
			t.Errorf("%q: read in other pieces it is %+v, %v", in, other, err)
		}
		e := parseExtensions(r.Lines)
		if e.MaxSize < 0 || e.MaxMessages < 0 || e.MaxRecipients < 0 {
			t.Errorf("%q: %+v", in, e)
		}
		for _, stage := range []Stage{StageGreeting, StageMail, StageRcpt, StageData, StageFinal} {
			if Classify(stage, r) == Delivered && (stage != StageFinal || r.Code/100 != 2) {
				t.Errorf("%q delivered at %s", in, stage)
			}
		}
	})
}

// A text that is shown for other mail contains no address of a message, not even inside a link.
func TestAnonymous(t *testing.T) {
	for text, want := range map[string]string{
		"<bob@d.test>: busy":                                        "<***>: busy",
		`"bob smith"@d.test, or b=ob@d.test`:                        "***, or ***",
		"see http://why.test/?s=mfrom;id=bob%40d.test;ip=192.0.2.1": "see http://why.test/?s=mfrom;***;ip=192.0.2.1",
		"see http://why.test/?ip=192.0.2.1":                         "see http://why.test/?ip=192.0.2.1",
	} {
		if got := RedactAddresses(StageRcpt, text); got != want {
			t.Errorf("%s: %s, want %s", text, got, want)
		}
	}
}

func TestExtensions(t *testing.T) {
	e := parseExtensions([]string{"mx.test greets", "size 1000", "Auth plain LOGIN", "AUTH=LOGIN", "LIMITS MAILMAX=10 RCPTMAX=x", "X", "", "8BITMIME"})
	if !e.Size || e.MaxSize != 1000 || !slices.Equal(e.Auth, []string{"PLAIN", "LOGIN", "LOGIN"}) || e.MaxMessages != 10 || e.MaxRecipients != 0 || !e.EightBit {
		t.Errorf("%+v", e)
	}
	if e := parseExtensions([]string{"PIPELINING", "SIZE 0"}); e.Pipelining || !e.Size || e.MaxSize != 0 {
		t.Errorf("%+v", e)
	}
}

func dotted(pieces ...string) string {
	var b bytes.Buffer
	d := dotWriter{w: &b}
	for _, p := range pieces {
		_, _ = d.Write([]byte(p))
	}
	_ = d.finish()
	return b.String()
}

func TestDots(t *testing.T) {
	for in, want := range map[string]string{
		"":                  ".\r\n",
		"a\r\n":             "a\r\n.\r\n",
		"a":                 "a\r\n.\r\n",
		".":                 "..\r\n.\r\n",
		".\r\n":             "..\r\n.\r\n",
		"a\r\n.b\r\n..\r\n": "a\r\n..b\r\n...\r\n.\r\n",
		"a\n.\nb":           "a\r\n..\r\nb\r\n.\r\n",
		"a\r.\rb\r":         "a\r\n..\r\nb\r\n.\r\n",
		"a\n.\r\nb":         "a\r\n..\r\nb\r\n.\r\n",
		"a\r\r\n.\r\n":      "a\r\n\r\n..\r\n.\r\n",
		"\r\n\n\r":          "\r\n\r\n\r\n.\r\n",
	} {
		if got := dotted(in); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
		if got := dotted(strings.Split(in, "")...); got != want {
			t.Errorf("%q byte by byte: %q, want %q", in, got, want)
		}
	}
}

// For any message, the host sees exactly one end, and every line end is CRLF.
func FuzzDots(f *testing.F) {
	f.Add([]byte("a\r\n.\r\nb"), 3)
	f.Add([]byte("\r.\n.\r"), 1)
	f.Fuzz(func(t *testing.T, in []byte, cut int) {
		cut = min(max(cut, 0), len(in))
		got := dotted(string(in[:cut]), string(in[cut:]))
		if got != dotted(string(in)) {
			t.Errorf("%q cut at %d differs", in, cut)
		}
		rest := "\r\n" + got
		if i := strings.Index(rest, "\r\n.\r\n"); i != len(rest)-5 {
			t.Errorf("%q ends early: %q", in, got)
		}
		if bare := strings.ReplaceAll(got, "\r\n", ""); strings.ContainsAny(bare, "\r\n") {
			t.Errorf("%q has a bare line end: %q", in, got)
		}
	})
}

func TestCommands(t *testing.T) {
	every := Extensions{Size: true, EightBit: true, UTF8: true, DSN: true}
	m := &Message{From: "a@x", Size: 7, EightBit: true, Ret: "FULL", EnvID: "a b=+", RequireTLS: true}
	if got := string(mailCommand(nil, m, &every, true)); got != "MAIL FROM:<a@x> SIZE=7 BODY=8BITMIME SMTPUTF8 REQUIRETLS RET=FULL ENVID=a+20b+3D+2B" {
		t.Errorf("%s", got)
	}
	r := &Rcpt{Addr: `"a b"@x`, Notify: NotifyDelay | NotifySuccess | NotifyFailure, ORCPT: "rfc822;q+q@x"}
	if got := string(rcptCommand(nil, r, &every)); got != `RCPT TO:<"a b"@x> NOTIFY=SUCCESS,FAILURE,DELAY ORCPT=rfc822;q+2Bq@x` {
		t.Errorf("%s", got)
	}
	r = &Rcpt{Addr: "a@x", ORCPT: "utf-8;bö+b\\=c@x"}
	if got := string(rcptCommand(nil, r, &every)); got != `RCPT TO:<a@x> ORCPT=utf-8;b\x{F6}\x{2B}b\x{5C}\x{3D}c@x` {
		t.Errorf("%s", got)
	}
	for _, none := range []string{"", "rfc822", "rfc822;bö@x", "rfc 822;a@x"} {
		if got := string(rcptCommand(nil, &Rcpt{Addr: "a@x", ORCPT: none}, &every)); got != "RCPT TO:<a@x>" {
			t.Errorf("%q: %s", none, got)
		}
	}
	for _, a := range []string{`"a>b"@x`, `"a\"b"@x`, "a@[192.0.2.1]", "ü@x"} {
		if !validAddress(a) {
			t.Errorf("%q is refused", a)
		}
	}
	for _, a := range []string{"", "a b@x", "a>@x", "<a@x", `"a@x`, `"a\`, "a\x00@x", "\"a\r\n\"@x", strings.Repeat("a", 600)} {
		if validAddress(a) {
			t.Errorf("%q is taken", a)
		}
	}
}

func TestTranscriptTimes(t *testing.T) {
	now := time.Unix(0, 0)
	tr := newTranscript(func() time.Time { return now })
	tr.addClientLine("DATA")
	now = now.Add(12345 * time.Millisecond)
	tr.addServerReply(Reply{Code: 250, Enhanced: "2.0.0", Lines: []string{"a", "b"}})
	if got := tr.text(); got != "0.000 C: DATA\n12.345 S: 250-2.0.0 a\n12.345 S: 250 2.0.0 b\n" {
		t.Errorf("%q", got)
	}
}
