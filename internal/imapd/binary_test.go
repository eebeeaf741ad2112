// SPDX-License-Identifier: Apache-2.0

package imapd_test

import (
	"context"
	"encoding/base64"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/mailstead/mailstead/internal/blob"
	"github.com/mailstead/mailstead/internal/db"
)

// RFC 3516: decoded sections.
func TestFetchBinary(t *testing.T) {
	each(t, func(h *fixture) {
		c := h.login()
		c.append("INBOX", "", mail)
		c.append("INBOX", "", crlf("Subject: x\nContent-Transfer-Encoding: x-unknown\n\nbegin 644 x\n"))
		c.ok("SELECT INBOX")
		text := "Grüße vom Meer, and a secret word: xylophone."
		inner := mail[strings.Index(mail, "From: inner"):strings.Index(mail, "\r\n--outer\r\nContent-Type: application")]
		for _, x := range []struct{ items, want string }{
			{"BINARY.PEEK[1]", "BINARY[1] " + lit(text)},
			{"BINARY.PEEK[1]<0.3>", "BINARY[1]<0> " + lit("Gr\xc3")},
			{"BINARY.PEEK[1]<40.100>", "BINARY[1]<40> " + lit(text[40:])},
			{"BINARY.PEEK[1]<4000.1>", "BINARY[1]<4000> " + lit("")},
			{"BINARY.PEEK[2]", "BINARY[2] " + lit(inner)},
			{"BINARY.PEEK[2.2]", "BINARY[2.2] " + lit("<p>inner html</p>")},
			{"BINARY.PEEK[3]", "BINARY[3] ~" + lit("\x00\x01\x02\x03\x04\x05")},
			{"BINARY.PEEK[3]<1.9>", "BINARY[3]<1> " + lit("\x01\x02\x03\x04\x05")}, // no NUL in these
			{"BINARY.PEEK[]", "BINARY[] " + lit(mail)},
			{"BINARY.PEEK[4]", "BINARY[4] NIL"},
			{"(BINARY.SIZE[1] BINARY.SIZE[3] BINARY.SIZE[] BINARY.SIZE[4])", fmt.Sprintf("BINARY.SIZE[1] %d BINARY.SIZE[3] 6 BINARY.SIZE[] %d BINARY.SIZE[4] 0", len(text), len(mail))},
			{"(BODY.PEEK[3] BINARY.PEEK[1]<0.2>)", "BODY[3] " + lit("AAECAwQF") + " BINARY[1]<0> " + lit("Gr")},
		} {
			c.ok("FETCH 1 " + x.items)
			c.got("* 1 FETCH (" + x.want + ")")
		}
		c.ok("FETCH 1:2 FLAGS")
		c.got(`* 1 FETCH (FLAGS (\Recent))`, `* 2 FETCH (FLAGS (\Recent))`)
		c.ok("FETCH 1 BINARY[1]<0.1>")
		c.got(`* 1 FETCH (FLAGS (\Seen \Recent) BINARY[1]<0> ` + lit("G") + ")")

		for _, item := range []string{"BINARY.PEEK[1]", "BINARY.SIZE[1]"} {
			c.no("FETCH 1:2 "+item, "UNKNOWN-CTE]")
			c.got("* 1 FETCH (BINARY…")
		}
		c.ok("FETCH 2 BINARY.PEEK[]") // the message itself is not encoded
	})
}

// A message with NULs is returned as it was sent, and without NULs where they are not allowed.
func TestAppendBinary(t *testing.T) {
	each(t, func(h *fixture) {
		c := h.login()
		data := strings.Repeat("\x00\x01\xff\r\n\n", 40_000) // too large for a row
		head := "Subject: x\r\nMIME-Version: 1.0\r\nContent-Type: multipart/mixed; boundary=b\r\n\r\n--b\r\nContent-Transfer-Encoding: 8bit\r\n\r\nGr\xc3\xbc\xc3\x9fe\r\n--b\r\n" +
			"Content-Type: application/octet-stream\r\nContent-Transfer-Encoding: binary\r\n\r\n"
		m := head + data + "\r\n--b--\r\n"
		c.ok(fmt.Sprintf("APPEND INBOX (\\Seen) ~{%d+}\r\n%s", len(m), m), "APPENDUID ")
		c.ok(fmt.Sprintf("APPEND INBOX ~{%d+}\r\n%s", len(mail), mail), "APPENDUID ")
		c.ok("SELECT INBOX")
		c.ok("FETCH 1 (BINARY.SIZE[2] BINARY[1])")
		c.got(fmt.Sprintf("* 1 FETCH (BINARY.SIZE[2] %d BINARY[1] %s)", len(data), lit("Grüße")))
		c.ok("FETCH 1 BINARY[2]")
		c.got("* 1 FETCH (BINARY[2] ~" + lit(data) + ")")
		c.ok("FETCH 1 BINARY[2]<239997.9>")
		c.got("* 1 FETCH (BINARY[2]<239997> " + lit("\r\n\n") + ")")
		c.ok("FETCH 1 BODYSTRUCTURE")
		c.got(`* 1 FETCH (BODYSTRUCTURE (("text" "plain" … "8bit" 7 …("application" "octet-stream" NIL NIL NIL "base64" …`)
		c.ok("FETCH 1 BODY[2]")
		_, sent, _ := strings.Cut(c.untagged[0], "}\r\n")
		got, err := base64.StdEncoding.DecodeString(strings.NewReplacer("\r\n", "", ")", "").Replace(sent))
		if err != nil || string(got) != data {
			t.Errorf("BODY[2] is not the data in base64: %v", err)
		}
		c.ok("FETCH 2 BODY.PEEK[]") // nothing to encode
		c.got("* 2 FETCH (BODY[] " + lit(mail) + ")")

		for _, stuck := range []string{
			"Subject: a\x00b\r\n\r\nx\r\n",
			"Content-Type: multipart/signed; boundary=b\r\n\r\n--b\r\n\r\na\x00b\r\n--b--\r\n",
		} {
			c.no(fmt.Sprintf("APPEND INBOX ~{%d+}\r\n%s", len(stuck), stuck), "UNKNOWN-CTE]")
		}
		c.ok("SEARCH ALL")
		c.got("* SEARCH 1 2")
	})
}

// gated is a file store whose reads wait for a gate.
type gated struct {
	blob.FileStore
	blob.FileReader
	reading chan<- struct{}
	gate    <-chan struct{}
	reads   *atomic.Int64
}

func (g gated) Open(ctx context.Context, name db.ID) (blob.FileReader, error) {
	r, err := g.FileStore.Open(ctx, name)
	g.FileReader = r
	return g, err
}

func (g gated) ReadAt(p []byte, off int64) (int, error) {
	if g.reads.Add(1) == 1 {
		close(g.reading)
	}
	<-g.gate
	return g.FileReader.ReadAt(p, off)
}

func (g gated) Close() error { return g.FileReader.Close() }

// A FETCH that decodes many sections of a large message ends when the server shuts down.
func TestFetchBinaryEnds(t *testing.T) {
	each(t, func(h *fixture) {
		h.login().append("INBOX", "", note("big")+strings.Repeat("0123456789abcdef\r\n", 50_000))
		c := h.selected("INBOX")
		reading, gate := make(chan struct{}), make(chan struct{})
		var reads atomic.Int64
		h.blobs.Files = gated{FileStore: h.blobs.Files, reading: reading, gate: gate, reads: &reads}
		c.begin("FETCH 1 (" + strings.TrimSpace(strings.Repeat("BINARY.SIZE[1] ", 64)) + ")")
		<-reading
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		ended := make(chan error)
		go func() { ended <- h.server.Shutdown(ctx) }()
		c.closed()
		close(gate)
		t.Log("the end:", <-ended)
		if n := reads.Load(); n > 1 {
			t.Errorf("%d readings after the end", n-1)
		}
		if errs := h.log.all(); len(errs) > 0 {
			t.Errorf("logged: %q", errs)
		}
	})
}
