// SPDX-License-Identifier: Apache-2.0

package imapd_test

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/mailstead/mailstead/internal/db/dbtest"
	"github.com/mailstead/mailstead/internal/folder"
	"github.com/mailstead/mailstead/internal/imapd"
	"github.com/mailstead/mailstead/internal/message"
)

const benchMessages = 10_000

// fill puts n messages of about 8 KiB into a folder.
func (h *fixture) fill(name string, n int) {
	h.Helper()
	filler := strings.Repeat("The quick brown fox jumps over the lazy dog, again and again.\r\n", 120)
	const batch = 500
	for start := 0; start < n; start += batch {
		var uploads []folder.Upload
		for i := start; i < min(n, start+batch); i++ {
			text := []byte(note(fmt.Sprintf("number-%d", i)) + filler)
			b, err := h.blobs.FromBytes(h.Context(), text)
			h.must(err)
			ix, header, err := message.ScanReader(bytes.NewReader(text))
			h.must(err)
			d, err := folder.NewMetadata(header, ix)
			h.must(err)
			u := folder.Upload{Blob: b, Metadata: d, Date: time.Now()}
			if i%10 != 0 {
				u.Flags = folder.Seen
			}
			uploads = append(uploads, u)
		}
		_, _, err := h.folders.Append(h.Context(), h.box.ID, name, uploads...)
		h.must(err)
	}
}

// quick runs a command and discards its responses.
func (c *client) quick(command string) (bytes int) {
	c.Helper()
	c.tag++
	tag := fmt.Sprintf("t%d ", c.tag)
	c.send(tag + command + "\r\n")
	for {
		line, err := c.br.ReadSlice('\n')
		c.must(err)
		bytes += len(line)
		if n := literalAt(line); n > 0 {
			m, err := c.br.Discard(n)
			c.must(err)
			bytes += m
			continue
		}
		if strings.HasPrefix(string(line[:min(len(line), len(tag))]), tag) {
			if !strings.HasPrefix(string(line[len(tag):]), "OK") {
				c.Fatalf("%s: %s", command, line)
			}
			return bytes
		}
	}
}

// literalAt returns the size of the literal that ends a line.
func literalAt(line []byte) int {
	line = bytes.TrimSuffix(line, []byte("}\r\n"))
	i := bytes.LastIndexByte(line, '{')
	n := 0
	if i < 0 {
		return 0
	}
	for _, d := range line[i+1:] {
		if d < '0' || d > '9' {
			return 0
		}
		n = n*10 + int(d-'0')
	}
	return n
}

func onEngines(b *testing.B, f func(b *testing.B, h *fixture)) {
	b.Run("sqlite", func(b *testing.B) { f(b, open(b, dbtest.SQLite(b), func(*imapd.Options) {})) })
	b.Run("postgres", func(b *testing.B) { f(b, open(b, dbtest.Postgres(b), func(*imapd.Options) {})) })
}

// BenchmarkFolder measures the rows of BENCHMARKS that repeat one command.
func BenchmarkFolder(b *testing.B) {
	onEngines(b, func(b *testing.B, h *fixture) {
		h.fill("INBOX", benchMessages)
		c := h.selected("INBOX")
		for _, x := range []struct{ name, command string }{
			{"SELECT", "SELECT INBOX"},
			{"FETCH_FLAGS", "FETCH 1:* FLAGS"},
			{"FETCH_ENVELOPE", "FETCH 1:* (FLAGS ENVELOPE INTERNALDATE RFC822.SIZE)"},
			{"FETCH_STRUCTURE", "FETCH 1:* BODYSTRUCTURE"},
			{"FETCH_BODIES", "FETCH 1:* BODY.PEEK[]"},
			{"FETCH_HEADERS", "FETCH 1:* BODY.PEEK[HEADER.FIELDS (SUBJECT)]"},
			{"FETCH_ONE_BODY", "FETCH 5000 BODY.PEEK[]"},
			{"SEARCH_SUBJECT", "SEARCH SUBJECT number-77"},
			{"SEARCH_UNSEEN", "SEARCH UNSEEN"},
			{"SEARCH_BODY", "SEARCH BODY unicorn"},
			{"SORT_ARRIVAL", "UID SORT (REVERSE ARRIVAL) UTF-8 ALL"},
			{"SORT_SUBJECT", "UID SORT (SUBJECT DATE) UTF-8 ALL"},
			{"SORT_FROM", "UID SORT (DISPLAYFROM REVERSE DATE) UTF-8 ALL"},
			{"THREAD_SUBJECT", "UID THREAD ORDEREDSUBJECT UTF-8 ALL"},
			{"THREAD_REFERENCES", "UID THREAD REFERENCES UTF-8 ALL"},
			{"PREVIEW_50", "FETCH 5001:5050 PREVIEW"},
			{"NOOP", "NOOP"},
		} {
			b.Run(x.name, func(b *testing.B) {
				for b.Loop() {
					b.SetBytes(int64(c.quick(x.command)))
				}
			})
		}
		b.Run("STORE_ALL", func(b *testing.B) {
			for i := 0; b.Loop(); i++ {
				c.quick(fmt.Sprintf("STORE 1:* %cFLAGS (\\Flagged)", "+-"[i%2]))
			}
		})
		b.Run("STORE_ONE", func(b *testing.B) {
			for i := 0; b.Loop(); i++ {
				c.quick(fmt.Sprintf("STORE 77 %cFLAGS (\\Flagged)", "+-"[i%2]))
			}
		})
		b.Run("COPY_1000", func(b *testing.B) {
			for b.Loop() {
				c.quick("COPY 1:1000 Archive")
			}
		})
		b.Run("EXPUNGE_1000", func(b *testing.B) {
			for b.Loop() {
				b.StopTimer()
				c.quick("COPY 1:1000 Trash")
				c.quick("SELECT Trash")
				c.quick("STORE 1:1000 +FLAGS.SILENT (\\Deleted)")
				b.StartTimer()
				c.quick("EXPUNGE")
				b.StopTimer()
				c.quick("SELECT INBOX")
				b.StartTimer()
			}
		})
		b.Run("MOVE_1000", func(b *testing.B) {
			for b.Loop() {
				b.StopTimer()
				c.quick("COPY 1:1000 Junk")
				c.quick("SELECT Junk")
				b.StartTimer()
				c.quick("MOVE 1:1000 Trash")
				b.StopTimer()
				c.quick("SELECT INBOX")
				b.StartTimer()
			}
		})
	})
}

func BenchmarkAppend(b *testing.B) {
	onEngines(b, func(b *testing.B, h *fixture) {
		c := h.login()
		m := note("x") + strings.Repeat("0123456789abcdef\r\n", 440)
		command := fmt.Sprintf("APPEND Sent {%d+}\r\n%s", len(m), m)
		for b.Loop() {
			c.quick(command)
		}
	})
}

func BenchmarkLogin(b *testing.B) {
	onEngines(b, func(b *testing.B, h *fixture) {
		h.login() // so that the password is known
		for b.Loop() {
			b.StopTimer()
			c := h.dialTLS()
			b.StartTimer()
			c.quick("LOGIN " + alice + " " + password)
			b.StopTimer()
			_ = c.nc.Close()
			b.StartTimer()
		}
	})
}

// BenchmarkIdlePush measures the time from the OK of a change to its announcement in another
// session.
func BenchmarkIdlePush(b *testing.B) {
	onEngines(b, func(b *testing.B, h *fixture) {
		a, c := h.selected("INBOX"), h.selected("INBOX")
		m := note("x")
		command := fmt.Sprintf("APPEND INBOX {%d+}\r\n%s", len(m), m)
		a.idle()
		for b.Loop() {
			b.StopTimer()
			c.quick(command)
			b.StartTimer()
			a.next("* … EXISTS")
			b.StopTimer()
			a.next("* … RECENT")
			b.StartTimer()
		}
	})
}

// BenchmarkIdleStatements counts the statements that sessions in IDLE cause on PostgreSQL while
// nothing happens. Each has a folder of its own open.
func BenchmarkIdleStatements(b *testing.B) {
	const sessions, measured = 2_000, 30 * time.Second
	proxy := dbtest.StartProxy(b, dbtest.Postgres(b))
	h := open(b, proxy.URL, func(*imapd.Options) {})
	ctx, end := context.WithCancel(b.Context())
	defer end()
	go h.folders.Run(ctx) //nolint:errcheck // returns nil
	addr := h.serve(h.server.ServeTrusted)
	for i := range sessions {
		name := fmt.Sprintf("folder-%d", i)
		_, err := h.folders.Create(ctx, h.box.ID, name)
		h.must(err)
		defer h.idleSocket(addr, name, func(nc net.Conn) net.Conn { return nc }).Close() //nolint:errcheck // nothing to lose
	}
	for b.Loop() {
		before := proxy.Statements.Load()
		<-time.After(measured)
		b.ReportMetric(float64(proxy.Statements.Load()-before)/measured.Seconds(), "statements/s")
	}
}
