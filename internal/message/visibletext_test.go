// SPDX-License-Identifier: Apache-2.0

package message

import (
	"io"
	"strings"
	"testing"
	"testing/iotest"
	"unicode/utf8"
)

func TestVisible(t *testing.T) {
	for html, want := range map[string]string{
		"<p>in<b>voi</b>ce</p>":                                              "invoice",
		"<p>one</p><p>two</p>three<br>four<td>five":                          "one two three four five",
		"a\r\n  b&nbsp;\tc":                                                  "a b c",
		"caf&eacute; &#8364;5 &#x41;&amp;B &amp;lt; &bogus; a&b &lt;b&gt;":   "café €5 A&B &lt; &bogus; a&b <b>",
		"AT&T &copy 2026&":                                                   "AT&T © 2026&",
		"<style>p { color: red }</style>x<script>if (a</b/>2) {}</script>y":  "x y",
		"<STYLE type=a>x</styles>y</Style >z":                                "z",
		"<title>no &amp; no</title><body onload='a > b'>yes":                 "yes",
		"<!-- a > b -- c -->x<!-->y<!--->z<!--a--!>w<!DOCTYPE html><?php ?>": "xyzw",
		"1 < 2 <3 <> a</>b</ c>d":                                            "1 < 2 <3 <> abd",
		`<img src="a>b" alt="A &quot;b&quot;" title=c>after`:                 `A "b" after`,
		`x<IMG ALT = logo>y<img alt=''>z<i alt="no">w`:                       "x logo y zw",
		`<a href=http://example.com/?a=b>link</a>`:                           "link",
		`<p class="un>closed`:                                                "",
		"soft\u00adhy&shy;phen zero\u200bwidth":                              "softhyphen zerowidth",
		"日本<b>語</b>":                                                         "日本語",
		"<noscript>seen</noscript><textarea>also":                            "seen also",
		"plain": "plain",
		"":      "",
		"x <":   "x",
	} {
		for _, r := range []io.Reader{strings.NewReader(html), iotest.OneByteReader(strings.NewReader(html)), iotest.DataErrReader(strings.NewReader(html))} {
			if got, err := io.ReadAll(VisibleText(r)); err != nil || string(got) != want {
				t.Errorf("%q: got %q, %v; want %q", html, got, err, want)
			}
		}
	}
	if _, err := io.ReadAll(VisibleText(iotest.ErrReader(io.ErrUnexpectedEOF))); err == nil {
		t.Error("the reader's error is lost")
	}
}

func FuzzVisible(f *testing.F) {
	f.Add("<p>in<b>voi</b>ce &eacute;<!-- x --><style>a</style><img alt='b&amp;'>")
	f.Add("<\x80&#x110000;</script\xff")
	f.Fuzz(func(t *testing.T, html string) {
		whole, err := io.ReadAll(VisibleText(strings.NewReader(html)))
		if err != nil {
			t.Fatal(err)
		}
		pieces, err := io.ReadAll(VisibleText(iotest.OneByteReader(strings.NewReader(html))))
		if err != nil || string(pieces) != string(whole) {
			t.Fatalf("read by the byte: %q, %v; at once: %q", pieces, err, whole)
		}
		if !utf8.Valid(whole) {
			t.Fatalf("%q is no UTF-8", whole)
		}
	})
}
