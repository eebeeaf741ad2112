// SPDX-License-Identifier: Apache-2.0

package imapd_test

import (
	"crypto/tls"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/mailstead/mailstead/internal/db/dbtest"
	"github.com/mailstead/mailstead/internal/imapd"
)

// inState returns a connection in one of the states that a session can be in.
func (h *fixture) inState(state byte) *client {
	switch state % 8 {
	case 0:
		return h.dial()
	case 1:
		return h.dialTLS()
	case 2:
		return h.login()
	case 3:
		return h.selected("INBOX")
	case 6:
		c := h.resyncing()
		c.ok("ENABLE UTF8=ACCEPT IMAP4rev2")
		c.ok("SELECT INBOX")
		return c
	case 7:
		c := h.selected("INBOX")
		c.compress()
		return c
	case 4:
		c := h.login()
		c.ok("EXAMINE INBOX (CONDSTORE)")
		return c
	}
	c := h.selected("INBOX")
	c.idle()
	return c
}

// For all input in all states, the server does not panic, and the connection ends when the client
// closes its side.
func FuzzServer(f *testing.F) {
	h := open(f, dbtest.SQLite(f), func(*imapd.Options) {})
	owner := h.login()
	owner.append("INBOX", "", mail)
	for state, text := range []string{
		"a CAPABILITY\r\nb ID NIL\r\nc LOGIN a b\r\nd STARTTLS\r\n",
		"a AUTHENTICATE PLAIN\r\nAGFsaWNl\r\nb AUTHENTICATE PLAIN =\r\nc LOGIN {3+}\r\nabc {3}\r\n",
		"a LIST \"\" (* %) RETURN (STATUS (MESSAGES))\r\nb APPEND INBOX (\\Seen) {3+}\r\nabc\r\nc STATUS INBOX (UNSEEN)\r\nd CREATE a/b\r\ne RENAME a c\r\nf DELETE c/b\r\n",
		"a FETCH 1:* (FULL BODY[2.HEADER.FIELDS (x)]<1.2>)\r\nb STORE 1 +FLAGS (x)\r\nc UID SEARCH RETURN (ALL) OR BODY x NOT SUBJECT y\r\nd COPY 1 Sent\r\ne MOVE 1 Trash\r\n",
		"a FETCH * (MODSEQ BODYSTRUCTURE) (CHANGEDSINCE 1)\r\nb SEARCH MODSEQ 1\r\nc CLOSE\r\nd UNSELECT\r\n",
		"a SEARCH RETURN (SAVE) ALL\r\nb UID SORT RETURN (PARTIAL 1:2 MIN) (SUBJECT REVERSE DISPLAYTO) UTF-8 $\r\nc THREAD REFERENCES UTF-8 ALL\r\nd THREAD ORDEREDSUBJECT UTF-8 $\r\n",
		"a FETCH 1 (BINARY[3]<1.2> BINARY.SIZE[1] PREVIEW (LAZY) SAVEDATE)\r\nb UID FETCH 1:* PREVIEW (PARTIAL -1:-2)\r\nc APPEND INBOX ~{5+}\r\na\x00b\r\n\r\n",
		"DONE\r\na IDLE\r\nNOOP\r\nb NOOP\r\n",
		"a SELECT INBOX (QRESYNC (1 2 3:4 (1,3 1,9)))\r\nb UID FETCH 1:* FLAGS (CHANGEDSINCE 1 VANISHED)\r\nc UID REPLACE * INBOX (\\Seen) UTF8 (~{3+}\r\nabc)\r\nd UID EXPUNGE $\r\ne CLOSE\r\n",
		"a APPEND INBOX {3+}\r\nabc (\\Seen) {0+}\r\n\r\nb UNAUTHENTICATE\r\nc LOGIN a b\r\n",
	} {
		f.Add(byte(state), []byte(text))
	}
	f.Fuzz(func(t *testing.T, state byte, input []byte) {
		h.TB = t // failures belong to this input
		c := h.inState(state)
		h.must(c.nc.SetDeadline(time.Now().Add(30 * time.Second)))
		drained := make(chan error)
		go func() {
			_, err := io.Copy(io.Discard, c.br)
			drained <- err
		}()
		// The server may have closed the connection already.
		_, _ = c.nc.Write(input)
		if s, ok := c.nc.(*squeezed); ok {
			_, _ = s.Conn.Write(input) // usually invalid data
			c.nc = s.Conn
		}
		switch nc := c.nc.(type) {
		case *tls.Conn:
			_ = nc.CloseWrite()
		case *net.TCPConn:
			_ = nc.CloseWrite()
		}
		if err, timeout := (<-drained).(net.Error); timeout && err.Timeout() {
			t.Fatal("the server hangs")
		}
		_ = c.nc.Close()
		for _, line := range h.log.all() {
			if strings.Contains(line, "panicked") {
				t.Fatal(line)
			}
		}
	})
}
