// SPDX-License-Identifier: Apache-2.0

package message_test

import (
	"io"
	"strings"
	"testing"

	"github.com/mailstead/mailstead/internal/heaptest"
	"github.com/mailstead/mailstead/internal/message"
	"github.com/mailstead/mailstead/internal/needtest"
)

// Parsing a mail needs little memory, for any content.
func TestMemoryOfVisible(t *testing.T) {
	heaptest.Check(t, func(r io.Reader) any { return heaptest.Discard(message.VisibleText(r)) },
		heaptest.Input{Head: "<a href", Unit: " "},
		heaptest.Input{Head: "<a href", Unit: " \r\n"},
		heaptest.Input{Head: "<", Unit: "a"},
		heaptest.Input{Head: "&", Unit: "a"},
		heaptest.Input{Head: "<!--", Unit: "-"},
		heaptest.Input{Head: "<style>", Unit: "</style "})
}

func TestMemoryOfText(t *testing.T) {
	needtest.Full(t, "memory")
	for _, c := range []struct {
		encoding, charset string
		units             []string
	}{
		{"base64", "", []string{"="}},
		{"quoted-printable", "", []string{" ", "="}},
		{"", "", []string{"\xff"}},
		{"x-uuencode", "", []string{"x", "\n", "begin 644 x\n", "begin 644 x\n_ABC"}},
		{"", "iso-2022-jp", []string{"\x1b", "\x1b$B"}},
		{"", "gb18030", []string{"\x81"}},
		{"", "hz-gb-2312", []string{"~"}},
		{"", "utf-16", []string{"\xd8"}},
		{"", "iso-2022-kr", []string{"\x1b", "\x1b$", "\x0e", "\x0e!"}},
		{"", "utf-7", []string{"+", "+2D0", "A"}},
		{"", "cp1006", []string{"\xff"}},
	} {
		p := message.Part{Encoding: c.encoding, Params: []message.Param{{Name: "charset", Value: c.charset}}}
		for _, unit := range c.units {
			heaptest.Check(t, func(r io.Reader) any { return heaptest.Discard(p.Text(r, 1<<40)) }, heaptest.Input{Unit: unit})
		}
	}
}

func TestMemoryOfScan(t *testing.T) {
	scan := func(r io.Reader) any {
		ix, header, err := message.ScanReader(r)
		if err != nil {
			t.Error(err)
		}
		return []any{ix, header}
	}
	const embedded = "Content-Type: message/rfc822\r\n\r\n"
	const multipart = "Content-Type: multipart/mixed; boundary=b\r\n\r\n"
	heaptest.Check(t, scan,
		heaptest.Input{Head: "", Unit: "a"},
		heaptest.Input{Head: "Subject: ", Unit: " "},
		heaptest.Input{Head: "", Unit: "a:\n"},
		heaptest.Input{Head: "Content-Type: text/plain; a=\"", Unit: "\\"},
		heaptest.Input{Head: "Content-Language: ", Unit: "a,"},
		heaptest.Input{Head: embedded + "To: ", Unit: "("},
		heaptest.Input{Head: embedded + "From: ", Unit: "\xff"},
		heaptest.Input{Head: embedded + "From: ", Unit: "a,"},
		heaptest.Input{Head: "", Unit: embedded},
		heaptest.Input{Head: multipart, Unit: "-"},
		heaptest.Input{Head: multipart, Unit: "\r"})
	// The index of a message with very many parts is larger.
	long := strings.Repeat("x", 100_000)
	heaptest.CheckLimit(t, 3*heaptest.Limit, scan,
		heaptest.Input{Head: multipart, Unit: "--b\r\n\r\n"},
		heaptest.Input{Head: multipart, Unit: "--b\r\nContent-Description: " + long + "\r\n\r\n"},
		heaptest.Input{Head: multipart, Unit: "--b\r\nContent-Language: " + strings.Repeat("a,", 60) + "\r\n\r\n"},
		heaptest.Input{Head: multipart, Unit: "--b\r\n" + embedded + "Subject: " + long + "\r\n\r\n"})
}

func TestMemoryOfLineEnds(t *testing.T) {
	heaptest.Check(t, func(r io.Reader) any { return heaptest.Discard(message.NormalizeLineEnds(r)) }, heaptest.Input{Unit: "\n"})
}
