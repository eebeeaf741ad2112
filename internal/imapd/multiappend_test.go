// SPDX-License-Identifier: Apache-2.0

package imapd_test

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/mailstead/mailstead/internal/blob"
	"github.com/mailstead/mailstead/internal/imapd"
	"github.com/mailstead/mailstead/internal/mailbox"
)

// upload returns a message as a non-synchronizing literal.
func upload(m string) string { return fmt.Sprintf("{%d+}\r\n%s", len(m), m) }

// The example of RFC 3502 §6.3.11.
func TestMultiAppend(t *testing.T) {
	each(t, func(h *fixture) {
		c := h.selected("Archive")
		one, two := note("one"), note("two")
		tag := c.begin(fmt.Sprintf(`APPEND Archive (\Seen) {%d}`, len(one)))
		c.continued("+ ")
		c.send(one + fmt.Sprintf(" (\\Seen) \" 7-Feb-1994 22:43:04 -0800\" {%d}\r\n", len(two)))
		c.continued("+ ")
		c.send(two + "\r\n")
		c.finish(tag)
		if !matches("OK [APPENDUID … 1:2] …", c.tagged) {
			t.Fatalf("got %q", c.tagged)
		}
		c.got("* 2 EXISTS", "* 2 RECENT")
		c.ok("FETCH 1:2 (FLAGS INTERNALDATE BODY.PEEK[])")
		c.got(fmt.Sprintf("* 1 FETCH (FLAGS (\\Seen \\Recent) INTERNALDATE \"…\" BODY[] {%d}\r\n%s)", len(one), one),
			fmt.Sprintf("* 2 FETCH (FLAGS (\\Seen \\Recent) INTERNALDATE \" 8-Feb-1994 06:43:04 +0000\" BODY[] {%d}\r\n%s)", len(two), two))
		c.no(`APPEND bogusname (\Flagged) {70000}`, "TRYCREATE]")

		// A command that fails at any of its messages stores nothing.
		for _, wrong := range []struct{ rest, answer string }{
			{" {0+}\r\n", "NO "}, // the client cancels
			{" {0}", "NO "},
			{" {52428801}", "NO [TOOBIG]"},
			{` (\Frob) ` + upload(two), "NO [CANNOT]"},
			{" " + upload(two) + " ", "BAD "},
			{" UTF8 (~" + upload(two) + ")", "BAD "},
			{" ~" + upload("X: \x00\r\n\r\n"), "NO [UNKNOWN-CTE]"},
			{" (" + strings.Repeat("k ", 63) + "{x}) " + upload(two), "BAD "},
		} {
			c.do("APPEND Archive "+upload(one)+wrong.rest, wrong.answer)
			c.got()
		}
		many := strings.Repeat(" "+upload("a: b\r\n\r\n"), 1000)
		c.no("APPEND Archive"+many+" "+upload(one), "LIMIT]")
		c.ok("STATUS Archive (MESSAGES UIDNEXT)")
		c.got("* STATUS Archive (MESSAGES 2 UIDNEXT 3)")
		c.ok("APPEND Archive" + many)
		if !matches("OK [APPENDUID … 3:1002] …", c.tagged) {
			t.Fatalf("got %q", c.tagged)
		}
	})
}

// Each message fits into the quota, but not all together.
func TestMultiAppendOverQuota(t *testing.T) {
	each(t, func(h *fixture) {
		mb := 1
		_, err := h.mailboxes.Update(h.Context(), h.box.Account, h.box.ID, mailbox.Change{QuotaMB: &mb})
		h.must(err)
		c := h.login()
		m := note("big") + strings.Repeat("0123456789abcdef\r\n", 25_000)
		small := note("small") + strings.Repeat("0123456789abcdef\r\n", 3_000)
		c.no("APPEND INBOX "+upload(m)+" "+upload(m)+fmt.Sprintf(" {%d}", len(m)), "OVERQUOTA]")
		c.no("APPEND INBOX"+strings.Repeat(" "+upload(small), 20), "OVERQUOTA]")
		c.ok("STATUS INBOX (MESSAGES)")
		c.got("* STATUS INBOX (MESSAGES 0)")
		c.ok(`GETQUOTA ""`)
		c.got(`* QUOTA "" (STORAGE 0 1024)`)
	})
}

// A command that takes so long that its first file may have been swept must fail.
func TestMultiAppendForDays(t *testing.T) {
	var ahead atomic.Int64
	clock := func(o *imapd.Options) {
		o.Now = func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }
		o.Blobs.Now = o.Now
	}
	eachWith(t, clock, func(h *fixture) {
		c := h.login()
		one, two := note("one")+strings.Repeat("0123456789abcdef\r\n", 5_000), note("two")
		tag := c.begin(fmt.Sprintf("APPEND INBOX {%d}", len(one)))
		c.continued("+ ")
		c.send(one + fmt.Sprintf(" {%d}\r\n", len(two)))
		c.continued("+ ")
		swept := 0
		for _, later := range []time.Duration{blob.SweepAge + time.Minute, blob.SweepDelay} {
			ahead.Add(int64(later))
			n, err := h.blobs.Sweep(h.Context())
			h.must(err)
			swept += n
		}
		if swept != 1 {
			t.Fatalf("%d files were swept", swept)
		}
		c.send(two + "\r\n")
		c.finish(tag)
		if !matches("NO [LIMIT] …", c.tagged) {
			t.Errorf("got %q", c.tagged)
		}
		c.ok("STATUS INBOX (MESSAGES)")
		c.got("* STATUS INBOX (MESSAGES 0)")
	})
}
