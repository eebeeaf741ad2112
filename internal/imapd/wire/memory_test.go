// SPDX-License-Identifier: Apache-2.0

package wire_test

import (
	"bufio"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/mailstead/mailstead/internal/heaptest"
	"github.com/mailstead/mailstead/internal/imapd/wire"
)

// What reads commands needs little memory, whatever a client sends.
func TestMemoryOfCommands(t *testing.T) {
	commands := func(limits wire.Limits) func(r io.Reader) any {
		return func(r io.Reader) any {
			in := wire.NewReader(bufio.NewReader(r), func(string) error { return nil })
			in.Limits = limits
			var last wire.Command
			for {
				_, cmd, err := in.ReadCommand()
				var refused *wire.Error
				if err != nil && (!errors.As(err, &refused) || refused.Status == wire.Bye) {
					return []any{in, last}
				}
				if err == nil {
					last = cmd
				}
			}
		}
	}
	heaptest.Check(t, commands(wire.LimitsBeforeLogin()),
		heaptest.Input{Head: "", Unit: "a"},
		heaptest.Input{Head: "a LOGIN ", Unit: "{9+}\r\n"})
	heaptest.Check(t, commands(wire.LimitsAfterLogin(2*heaptest.Size)),
		heaptest.Input{Head: "", Unit: "\r"},
		heaptest.Input{Head: "a SEARCH ", Unit: "("},
		heaptest.Input{Head: "a SEARCH " + strings.Repeat("OR NOT (", 8000) + "\r\n", Unit: "a"},
		heaptest.Input{Head: "a FETCH 1" + strings.Repeat(",3", 16_000) + " (FLAGS)\r\n", Unit: "a"},
		heaptest.Input{Head: "a SEARCH " + strings.Repeat("BODY x ", 999) + "ALL\r\n", Unit: "a"},
		heaptest.Input{Head: "a LOGIN \"", Unit: "\\"},
		heaptest.Input{Head: "a APPEND x {67108000+}\r\n", Unit: "\n"})
}

func TestMemoryOfInflater(t *testing.T) {
	inflate := func(r io.Reader) any { return heaptest.Discard(wire.NewInflater(bufio.NewReader(r))) }
	heaptest.Check(t, inflate,
		heaptest.Input{Head: "\x00\xff\xff\x00\x00", Unit: "a"}, // stored blocks
		heaptest.Input{Head: "", Unit: "\x02\x00"})
}
