// SPDX-License-Identifier: Apache-2.0

package message_test

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"io"
	"os"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/mailstead/mailstead/internal/message"
)

// The names of the WHATWG standard and of Python are known in bodies, encoded words and parameters.
func TestCharsets(t *testing.T) {
	file, err := os.ReadFile("testdata/charsets.tsv")
	if err != nil {
		t.Fatal(err)
	}
	names := 0
	for line := range strings.Lines(string(file)) {
		columns := strings.Split(strings.TrimSuffix(line, "\n"), "\t")
		if strings.HasPrefix(line, "#") {
			continue
		}
		data, err := hex.DecodeString(columns[1])
		if err != nil {
			t.Fatal(err)
		}
		want := strings.ReplaceAll(columns[2], `\n`, "\n")
		for name := range strings.FieldsSeq(columns[0]) {
			names++
			p := message.Part{Params: []message.Param{{Name: "charset", Value: name}}}
			got, err := io.ReadAll(p.Text(iotest.OneByteReader(bytes.NewReader(data)), 1000))
			if err != nil || string(got) != want {
				t.Errorf("%s: text %q, %v, want %q", name, got, err, want)
			}
			word := "=?" + name + "?B?" + base64.StdEncoding.EncodeToString(data) + "?="
			if got := strings.TrimPrefix(message.DecodeWords(word), "\ufeff"); !strings.Contains(name, `"`) && got != strings.ReplaceAll(want, "\n", " ") {
				t.Errorf("%s: %s gave %q", name, word, got)
			}
		}
	}
	if names < 500 {
		t.Errorf("%d names", names)
	}
}

// What is broken in a charset costs only itself.
func TestBrokenCharsets(t *testing.T) {
	for _, c := range []struct{ charset, in, want string }{
		{"iso-8859-1", "5 \x80 \x93a\x94 \x85", "5 € “a” …"},
		{"us-ascii", "\x93a\x94", "“a”"},
		{"us-ascii", "ä €", "ä €"},
		{"iso-2022-kr", "\x1b$)C\x0e>H3gGO<<?d\x0f!", "안녕하세요!"},
		{"iso-2022-kr", "a\x0e>H\nb", "a안\nb"},
		{"iso-2022-kr", "\x0e>", "\uFFFD"},
		{"iso-2022-kr", "\x0e> H", "\uFFFD \uFFFD"},
		{"iso-2022-kr", "a\x1b", "a\uFFFD"},
		{"iso-2022-kr", "\x1b\x1b$)Ca\xff", "\uFFFDa\uFFFD"},
		{"iso-2022-cn", "\x1b$)G\x0e!!\x0fa", "\uFFFDa"},
		{"iso-2022-jp-2", "\x1b.A\x1bNi\x1b", "é\uFFFD"},
		{"iso-2022-jp-ms", "\x1b(J\\~\x1b(B\\~", "¥‾\\~"},
		{"utf-7", "+AOQ-+- +2D0-x +2D3eAA-!", "ä+ \uFFFDx 😀!"},
		{"utf-7", "+AOQ\xff \xe4", "ä\uFFFD \uFFFD"},
		{"cp932", "\x83e\x83", "テ\uFFFD"},
		{"x-user-defined", "a", "a"},
		{"replacement", "ä", "ä"},
		{strings.Repeat("x", 100), "ä", "ä"},
	} {
		p := message.Part{Params: []message.Param{{Name: "charset", Value: c.charset}}}
		got, err := io.ReadAll(p.Text(iotest.OneByteReader(strings.NewReader(c.in)), 1000))
		if err != nil || string(got) != c.want {
			t.Errorf("%s %q gave %q, %v, want %q", c.charset, c.in, got, err, c.want)
		}
	}
}
