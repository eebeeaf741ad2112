// SPDX-License-Identifier: Apache-2.0

package smtpclient

import (
	"bufio"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/mailstead/mailstead/internal/heaptest"
)

// Any reply needs little memory, even one without end.
func TestMemoryOfReplies(t *testing.T) {
	replies := func(r io.Reader) any {
		in, log := bufio.NewReader(r), newTranscript(time.Now)
		var last Reply
		for {
			reply, err := readReply(in)
			if err != nil {
				return []any{last, log, parseExtensions(last.Lines)}
			}
			last = reply
			log.addServerReply(reply)
		}
	}
	heaptest.Check(t, replies,
		heaptest.Input{Head: "", Unit: "2"},
		heaptest.Input{Head: "250-", Unit: " "},
		heaptest.Input{Head: "", Unit: "250-\r\n"},
		heaptest.Input{Head: "", Unit: "250-AUTH A\r\n"},
		heaptest.Input{Head: "", Unit: "250 5.1.1 " + strings.Repeat("\x80", 200) + "\r\n"})
}
