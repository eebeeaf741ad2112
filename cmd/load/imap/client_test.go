// SPDX-License-Identifier: Apache-2.0

package imap

import (
	"bufio"
	"net"
	"strings"
	"testing"
)

// script is a server: it waits for a line with the expected text, then sends its own.
func script(t *testing.T, steps ...[2]string) *Client {
	t.Helper()
	ours, theirs := net.Pipe()
	t.Cleanup(func() { _ = ours.Close() })
	go func() {
		defer func() { _ = theirs.Close() }()
		r := bufio.NewReader(theirs)
		for _, s := range steps {
			for {
				line, err := r.ReadString('\n')
				if err != nil {
					return
				}
				if strings.Contains(line, s[0]) {
					break
				}
			}
			if _, err := theirs.Write([]byte(s[1])); err != nil {
				return
			}
		}
	}()
	return &Client{conn: ours, r: bufio.NewReaderSize(ours, 64)}
}

func TestCommandCountsAndSkipsLiterals(t *testing.T) {
	long := strings.Repeat("x", 300)
	untagged := "* 1 FETCH (BODY[] {9}\r\na1 NO no\n FLAGS ())\r\n* 2 FETCH (X \"" + long + "\")\r\n"
	c := script(t, [2]string{"a1 FETCH", untagged + "a1 OK done\r\n"}, [2]string{"a2 NOOP", "a2 BAD what\r\n"})
	var seen int
	c.Untagged = func([]byte) { seen++ }
	a, err := c.Command("FETCH 1:* BODY[]")
	if err != nil || a.Lines != 2 || seen != 2 || a.Bytes != int64(len(untagged)) || a.Text != "OK done" {
		t.Errorf("%+v, %d seen, %v", a, seen, err)
	}
	if _, err := c.Command("NOOP"); err == nil || !strings.Contains(err.Error(), "BAD what") {
		t.Errorf("got %v", err)
	}
}

func TestAppendAndIdle(t *testing.T) {
	c := script(t, [2]string{"a1 APPEND Box {5+}", ""}, [2]string{"hello", "a1 OK\r\n"}, [2]string{"a2 IDLE", "+ go\r\n* 3 EXISTS\r\n"})
	if _, err := c.Append("Box", []byte("hello")); err != nil {
		t.Fatal(err)
	}
	if err := c.Idle(); err != nil {
		t.Fatal(err)
	}
	if line, err := c.NextLine(); err != nil || string(line) != "* 3 EXISTS\r\n" {
		t.Errorf("%q, %v", line, err)
	}
}

func TestQuote(t *testing.T) {
	if got := quote(`a"b\c`); got != `"a\"b\\c"` {
		t.Error(got)
	}
}
