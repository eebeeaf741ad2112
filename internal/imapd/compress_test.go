// SPDX-License-Identifier: Apache-2.0

package imapd_test

import (
	"bufio"
	"bytes"
	"compress/flate"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
)

// squeezed is a connection whose client compresses everything it sends.
type squeezed struct {
	net.Conn
	w *flate.Writer
}

func (s *squeezed) Write(p []byte) (int, error) {
	n, err := s.w.Write(p)
	if err == nil {
		err = s.w.Flush()
	}
	return n, err
}

// compress turns on COMPRESS=DEFLATE.
func (c *client) compress() {
	c.Helper()
	c.ok("COMPRESS DEFLATE")
	w, err := flate.NewWriter(c.nc, flate.BestCompression)
	c.must(err)
	c.nc = &squeezed{c.nc, w}
	c.br = bufio.NewReaderSize(flate.NewReader(c.br), 64<<10)
}

func TestCompress(t *testing.T) {
	each(t, func(h *fixture) {
		h.dialTLS().bad("COMPRESS DEFLATE")
		c := h.login()
		c.bad("COMPRESS LZMA")
		c.bad("COMPRESS")
		c.ok("SELECT INBOX")
		other := h.login()
		other.append("INBOX", "", note("one"))
		c.compress() // changes are reported with the next command
		c.no("COMPRESS DEFLATE", "COMPRESSIONACTIVE]")
		c.has("* 1 EXISTS")

		// Literals both ways, and large ones.
		m := note("large") + strings.Repeat("All work and no play makes Jack a dull boy.\r\n", 10_000)
		c.append("INBOX", "", m)
		tag := c.begin(fmt.Sprintf("APPEND INBOX {%d}", len(m)))
		c.continued("+ ")
		c.send(m + "\r\n")
		c.finish(tag)
		c.ok("FETCH 2:3 BODY.PEEK[]")
		c.got(fmt.Sprintf("* 2 FETCH (BODY[] {%d}\r\n%s)", len(m), m), fmt.Sprintf("* 3 FETCH (BODY[] {%d}\r\n%s)", len(m), m))

		// Pipelined commands, and an interrupted wait.
		c.send("p1 NOOP\r\np2 FETCH 1 UID\r\n")
		c.finish("p1")
		c.finish("p2")
		for range 3 {
			tag = c.idle()
			other.append("INBOX", "", note("more"))
			if a := c.answer(); !matches("* … EXISTS", a) {
				t.Fatalf("got %q", a)
			}
			if a := c.answer(); !matches("* … RECENT", a) {
				t.Fatalf("got %q", a)
			}
			c.send("DONE\r\n")
			c.finish(tag)
		}
		c.ok("FETCH 1:* UID")
		c.ok("LOGOUT")
		c.has("* BYE …")
	})
}

// Limits apply to the decompressed data, so a compression bomb has no more effect than the data
// itself.
func TestCompressionBomb(t *testing.T) {
	each(t, func(h *fixture) {
		c := h.selected("INBOX")
		c.compress()
		c.bad("FETCH 1 " + strings.Repeat("x", 1<<20))
		c.no("APPEND INBOX {52428801}", "TOOBIG]")
		c.bad("LOGIN {100000+}\r\n" + strings.Repeat("x", 100_000) + " y")
		c.ok("NOOP")
		// The server may close the connection before everything is written.
		_, _ = io.WriteString(c.nc, "a FETCH 1 "+strings.Repeat("x", 60<<20)+"\r\n")
		if a := c.answer(); !matches("* BYE [TOOBIG] …", a) {
			t.Errorf("got %q", a)
		}
	})
}

func TestCompressRefused(t *testing.T) {
	each(t, func(h *fixture) {
		c := h.login()
		c.send("a COMPRESS DEFLATE\r\nb NOOP\r\n") // which of the two is compressed?
		c.finish("a")
		if !strings.HasPrefix(c.tagged, "BAD ") {
			t.Errorf("got %q", c.tagged)
		}
		c.finish("b")
		c.ok("SELECT INBOX")
		c.compress()
		c.begin("UNAUTHENTICATE")
		if a := c.answer(); !matches("* BYE …", a) {
			t.Errorf("got %q", a)
		}
		// Invalid compressed data ends the connection.
		c = h.login()
		c.compress()
		_, err := io.WriteString(c.nc.(*squeezed).Conn, "\xff\xff\xff\xff")
		h.must(err)
		c.closed()
	})
}

// Executed commands are answered even if the stream ends, or breaks, right after them.
func TestCompressedStreamEnds(t *testing.T) {
	each(t, func(h *fixture) {
		for _, rest := range []string{"\x03\x00", "\xff\xff"} { // the last block, and invalid data
			c := h.login()
			c.compress()
			var b bytes.Buffer
			w, err := flate.NewWriter(&b, flate.BestCompression)
			h.must(err)
			m := note("last")
			_, err = fmt.Fprintf(w, "a APPEND INBOX {%d+}\r\n%s\r\n", len(m), m)
			h.must(err)
			h.must(w.Flush())
			_, err = io.WriteString(c.nc.(*squeezed).Conn, b.String()+rest)
			h.must(err)
			c.finish("a")
			c.closed()
		}
	})
}
