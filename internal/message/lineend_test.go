// SPDX-License-Identifier: Apache-2.0

package message_test

import (
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"pgregory.net/rapid"

	"github.com/mailstead/mailstead/internal/message"
)

func TestRefuseBare(t *testing.T) {
	for _, c := range []struct {
		in string
		at int64 // -1: no error
	}{
		{"", -1}, {"a\r\nb\r\n", -1}, {"\r\n\r\n", -1}, {"a", -1},
		{"a\nb", 1}, {"\n", 0}, {"a\r\n\n", 3}, {"a\rb", 2}, {"a\r\r\n", 2}, {"a\r", 1}, {"\r\n.\r", 3},
	} {
		for name, r := range map[string]io.Reader{"whole": strings.NewReader(c.in), "bytes": iotest.OneByteReader(strings.NewReader(c.in)), "data with EOF": iotest.DataErrReader(strings.NewReader(c.in))} {
			got, err := io.ReadAll(message.RejectBareLineEnds(r))
			var bare *message.LineEndError
			if c.at < 0 {
				if err != nil || string(got) != c.in {
					t.Errorf("%s %q: %q, %v", name, c.in, got, err)
				}
			} else if !errors.As(err, &bare) || bare.Offset != c.at {
				t.Errorf("%s %q: %v, want offset %d", name, c.in, err, c.at)
			}
		}
	}
}

func TestMendBare(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := rapid.StringOf(rapid.SampledFrom([]rune("ab\r\n"))).Draw(t, "in")
		want := strings.ReplaceAll(strings.ReplaceAll(strings.ReplaceAll(in, "\r\n", "\n"), "\r", "\n"), "\n", "\r\n")
		for _, kind := range []func(io.Reader) io.Reader{func(r io.Reader) io.Reader { return r }, iotest.OneByteReader, iotest.DataErrReader} {
			got, err := io.ReadAll(message.NormalizeLineEnds(kind(strings.NewReader(in))))
			if err != nil || string(got) != want {
				t.Fatalf("%q became %q, %v, want %q", in, got, err, want)
			}
			var copied strings.Builder
			if _, err := io.Copy(&copied, message.NormalizeLineEnds(kind(strings.NewReader(in)))); err != nil || copied.String() != want {
				t.Fatalf("%q was copied as %q, %v, want %q", in, copied.String(), err, want)
			}
			if _, err := io.ReadAll(message.RejectBareLineEnds(strings.NewReader(want))); err != nil {
				t.Fatalf("mended %q is refused: %v", want, err)
			}
		}
	})
}

func TestMaskNUL(t *testing.T) {
	got, err := io.ReadAll(message.MaskNUL(strings.NewReader("a\x00\x00b")))
	if err != nil || string(got) != "a\x80\x80b" {
		t.Errorf("%q, %v", got, err)
	}
}
