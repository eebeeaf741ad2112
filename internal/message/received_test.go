// SPDX-License-Identifier: Apache-2.0

package message_test

import (
	"bufio"
	"bytes"
	"strings"
	"testing"

	"github.com/mailstead/mailstead/internal/message"
)

// FuzzReceived compares the number of Received fields, which detects loops (RFC 5321 §6.3), with a
// count of lines.
func FuzzReceived(f *testing.F) {
	for _, seed := range []string{
		"Received: from a by b; x\r\nreceived : from c\r\n\tby d\r\nRECEIVED:\r\n\r\nReceived: body\r\n",
		"Received-SPF: pass\r\nX-Received: a\r\nReceived: a\nReceived: b\n\n", "Received\r\n: a\r\n\r\n", " Received: a\r\nReceived: b", "",
		strings.Repeat("Received: a\r\n", 120),
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, mail []byte) {
		header, err := message.ReadHeader(bufio.NewReader(bytes.NewReader(mail)))
		if err == nil && !bytes.HasPrefix(mail, header) {
			t.Fatalf("%q is no beginning of %q", header, mail)
		}
		want := 0
		for line := range bytes.Lines(header) {
			if len(bytes.TrimRight(line, "\r\n")) == 0 {
				break
			}
			name, _, ok := bytes.Cut(line, []byte(":"))
			if ok && strings.EqualFold(strings.TrimRight(string(name), " \t"), "Received") {
				want++
			}
		}
		if got := header.Count("Received"); got != want {
			t.Fatalf("%d, not %d, in %q", got, want, header)
		}
	})
}
