// SPDX-License-Identifier: Apache-2.0

package smtpd

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/mailstead/mailstead/internal/smtpclient"
)

func TestReadNotify(t *testing.T) {
	for s, want := range map[string]smtpclient.Notify{
		"NEVER":                 smtpclient.NotifyNever,
		"success":               smtpclient.NotifySuccess,
		"FAILURE,Delay":         smtpclient.NotifyFailure | smtpclient.NotifyDelay,
		"DELAY,FAILURE,SUCCESS": smtpclient.NotifyFailure | smtpclient.NotifyDelay | smtpclient.NotifySuccess,
		"":                      0, "NEVER,DELAY": 0, "SUCCESS,SUCCESS": 0, "SUCCESS,": 0, ",": 0, "ALWAYS": 0, "NEVER,NEVER": 0, "SUCCESS;DELAY": 0,
	} {
		if n, good := parseNotify(s); good != (want != 0) || good && n != want {
			t.Errorf("%q: %d %t", s, n, good)
		}
	}
}

func TestReadOrcpt(t *testing.T) {
	for s, want := range map[string]string{
		"rfc822;Bob@far.example":        "rfc822;Bob@far.example",
		"RFC822;a+2Bb+3D@far.example":   "rfc822;a+b=@far.example",
		"rfc822;+22a+20b+22@x":          `rfc822;"a b"@x`,
		"x400;/C=no":                    "",
		"x400;/C+3Dno":                  "x400;/C=no",
		`utf-8;b\x{F6}rn@x`:             "utf-8;börn@x",
		`utf-8;b\x{2B}\x{5C}\x{1F600}@`: `utf-8;b+\😀@`,
		"utf-8;börn@x":                  "utf-8;börn@x",
		"utf-8;b+2Bx@x":                 "utf-8;b+x@x",
		"rfc822;börn@x":                 "",
		"rfc822;a\xff":                  "", "utf-8;a\xff": "",
		"rfc822":                                 "",
		"rfc822;":                                "",
		";a@b":                                   "",
		"rf c;a":                                 "",
		"rfc822;a+0D+0Ab":                        "",
		"rfc822;a+00":                            "",
		"rfc822;a+2":                             "",
		"rfc822;a+":                              "",
		"rfc822;a+zz":                            "",
		"rfc822;a=b":                             "",
		`utf-8;\x{D800}`:                         "",
		`utf-8;\x{0D}`:                           "",
		`utf-8;\x{F6`:                            "",
		`utf-8;\y`:                               "",
		"rfc822;" + strings.Repeat("a", 493):     "rfc822;" + strings.Repeat("a", 493),
		"rfc822;" + strings.Repeat("a", 494):     "",
		`utf-8;\x{000000000000000000000000000F6`: "",
	} {
		if got, good := parseORCPT(s); good != (want != "") || good && got != want {
			t.Errorf("%q: %q %t", s, got, good)
		}
	}
}

func TestReadEnvID(t *testing.T) {
	for s, want := range map[string]string{
		"QQ314159": "QQ314159", "a+20b": "a b", strings.Repeat("x", 100): strings.Repeat("x", 100),
		"": "", strings.Repeat("x", 101): "", "a+0A": "", "ü": "", "a+2": "",
	} {
		var e Envelope
		r, known := e.parseDSNParam(param{"ENVID", s})
		if !known || (r.code == 0) != (want != "") || r.code != 0 && (r.code != 501 || r.enhanced != "5.5.4") || e.EnvID != want {
			t.Errorf("%q: %q %v", s, e.EnvID, r)
		}
	}
}

// FuzzDSN parses parameters of RCPT and MAIL. Accepted values can be repeated in a DSN, and are
// passed on to another host unchanged.
func FuzzDSN(f *testing.F) {
	for _, seed := range []string{
		" NOTIFY=SUCCESS,FAILURE ORCPT=rfc822;a+2Bb@x", " ORCPT=utf-8;b\\x{F6}rn@x NOTIFY=NEVER", " RET=HDRS ENVID=a+20b", " ORCPT=utf-8;b\u00f6@x", " NOTIFY= ORCPT=;",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, s string) {
		c := &conn{srv: &Server{Mode: Submission}}
		if w, r := c.parseRcptOptions(s); r.code == 0 {
			if !utf8.ValidString(w.ORCPT) || strings.ContainsAny(w.ORCPT, "\r\n\x00\x7f") || w.Notify > 15 {
				t.Errorf("%+v", w)
			}
			kind, addr, found := strings.Cut(w.ORCPT, ";")
			if found != (w.ORCPT != "") || found && (kind == "" || addr == "" || len(w.ORCPT) > maxORCPT) {
				t.Errorf("%+v", w)
			}
		}
		l := &currentTransaction{}
		if r := l.parseParams(s, mailParams{1 << 20, true, true}); r.code == 0 && !isPrintable(l.envelope.EnvID, false) {
			t.Errorf("%+v", l.envelope)
		}
	})
}
