// SPDX-License-Identifier: Apache-2.0

package spam

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/mailstead/mailstead/internal/message"
)

// read returns the words of a message.
func read(t testing.TB, text string) []uint64 {
	t.Helper()
	r := strings.NewReader(text)
	index, h, err := message.ScanReader(r)
	if err != nil {
		t.Fatal(err)
	}
	all, err := tokenize(h, index, r)
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func TestTokens(t *testing.T) {
	got := read(t, "From: Eve <eve@shop.example>\r\nSubject: =?utf-8?q?B=C3=BCcher?=\r\nContent-Type: text/html; charset=utf-8\r\nContent-Transfer-Encoding: base64\r\n\r\n"+
		"PHA+Y2g8Yj5lPC9iPmFwPCEtLSB4IC0tPiBwaWxscyBhdCA8YSBocmVmPSJodHRwczovL0JhZC5leGFtcGxlL3giPmhlcmU8L2E+IOS7t+agvA==\r\n")
	for _, want := range []string{"from:eve@shop.example", "domain:shop.example", "name:eve", "subject:bücher", "cheap", "pills", "here", "link:bad.example", "价格", "type:html"} {
		if !slices.Contains(got, fnvHash(want)) {
			t.Errorf("%q is none of its words", want)
		}
	}
	for _, not := range []string{"href", "example", "at"} {
		if slices.Contains(got, fnvHash(not)) {
			t.Errorf("%q is one of its words", not)
		}
	}
}

// Unclosed brackets hide nothing.
func TestTokensBetweenBrackets(t *testing.T) {
	got := read(t, "Content-Type: text/html\r\n\r\n<p>cheap</p> <<pills <b here<now")
	for _, want := range []string{"cheap", "pills", "here", "now"} {
		if !slices.Contains(got, fnvHash(want)) {
			t.Errorf("%q is none of its words", want)
		}
	}
}

// The amount of parsed text is limited.
func TestTokensOfMuch(t *testing.T) {
	var words, parts strings.Builder
	for n := range 1_000_000 {
		fmt.Fprintf(&words, "word%d ", n)
	}
	for range 5_000 {
		parts.WriteString("--b\r\nContent-Type: text/html\r\n\r\n<<<<a<b\r\n")
	}
	for name, text := range map[string]string{
		"a million words":   "Subject: x\r\n\r\n" + words.String(),
		"50 MB of one word": "Subject: x\r\n\r\n" + strings.Repeat("x", 50<<20),
		"50 MB of brackets": "Content-Type: text/html\r\n\r\n" + strings.Repeat("<", 50<<20),
		"parts":             "Content-Type: multipart/mixed; boundary=b\r\n\r\n" + parts.String(),
		"addresses":         "From: " + strings.Repeat("a@b.example, ", 20_000) + "\r\n\r\nx",
		"links":             "\r\n" + strings.Repeat("http://", 1<<20),
	} {
		if got := read(t, text); len(got) > maxTokens {
			t.Errorf("%s: %d words", name, len(got))
		}
	}
}

func FuzzTokens(f *testing.F) {
	f.Add([]byte("From: a@b.c\r\nSubject: x\r\nContent-Type: text/html\r\n\r\n<a href=\"http://x.example/\">buy</a> <!-- x --> now"))
	f.Add([]byte("Content-Type: multipart/mixed; boundary=b\r\n\r\n--b\r\nContent-Type: text/plain; charset=utf-16\r\n\r\n\xff\xfe\x00a\r\n--b--"))
	f.Add([]byte("\r\n\xe4\xbb\xb7\xe6\xa0\xbc http://\xff <"))
	f.Fuzz(func(t *testing.T, text []byte) {
		got := read(t, string(text))
		if len(got) > maxTokens || !slices.IsSorted(got) || len(slices.Compact(slices.Clone(got))) != len(got) {
			t.Fatalf("%d words", len(got))
		}
		if again := read(t, string(bytes.Clone(text))); !slices.Equal(got, again) {
			t.Fatal("read again it has other words")
		}
	})
}

func TestCombine(t *testing.T) {
	repeat := func(p float64, n int) []float64 { return slices.Repeat([]float64{p}, n) }
	for _, tt := range []struct {
		known    []float64
		from, to float64
	}{
		{nil, 0.5, 0.5}, {repeat(0.5, 50), 0.5, 0.5}, {repeat(0.98, 20), 0.999, 1}, {repeat(0.02, 20), 0, 0.001},
		{append(repeat(0.98, 20), repeat(0.02, 20)...), 0.4, 0.6}, {repeat(0.9999, 150), 0.999, 1}, {repeat(0.7, 1), 0.5, 0.75},
	} {
		if got := combineProbabilities(slices.Clone(tt.known)); !(got >= tt.from && got <= tt.to) {
			t.Errorf("%v: %v", tt.known, got)
		}
	}
}
