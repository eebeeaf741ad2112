// SPDX-License-Identifier: Apache-2.0

package imapd_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/mailstead/mailstead/internal/mailbox"
)

func TestAppend(t *testing.T) {
	each(t, func(h *fixture) {
		c := h.selected("INBOX")
		m := note("one")
		c.ok(fmt.Sprintf("APPEND INBOX (\\Seen $Work \\Draft) \"02-Mar-2026 11:22:33 +0200\" {%d+}\r\n%s", len(m), m), "APPENDUID ")
		if !matches("OK [APPENDUID … 1] …", c.tagged) {
			t.Fatalf("got %q", c.tagged)
		}
		c.got(append(keywords("$Work"), "* 1 EXISTS", "* 1 RECENT")...)
		c.ok("FETCH 1 (FLAGS INTERNALDATE RFC822.SIZE BODY.PEEK[])")
		c.got(fmt.Sprintf("* 1 FETCH (FLAGS (\\Seen \\Draft…$Work) INTERNALDATE \" 2-Mar-2026 09:22:33 +0000\" RFC822.SIZE %d BODY[] {%d}\r\n%s)",
			len(m), len(m), m))

		// With a synchronizing literal, the client waits for the continuation.
		tag := c.begin(fmt.Sprintf("APPEND INBOX {%d}", len(m)))
		c.continued("+ ")
		c.send(m + "\r\n")
		c.finish(tag)
		c.got("* 2 EXISTS", "* 2 RECENT")
	})
}

// A large message goes to a file and comes back the same.
func TestAppendLarge(t *testing.T) {
	each(t, func(h *fixture) {
		c := h.selected("INBOX")
		m := note("large") + strings.Repeat("All work and no play makes Jack a dull boy.\r\n", 10_000)
		c.append("INBOX", "", m)
		c.ok("FETCH 1 BODY.PEEK[]")
		c.got(fmt.Sprintf("* 1 FETCH (BODY[] {%d}\r\n%s)", len(m), m))
		c.ok("FETCH 1 BODY.PEEK[TEXT]<450000.20>")
		body := m[strings.Index(m, "\r\n\r\n")+4:]
		c.got(fmt.Sprintf("* 1 FETCH (BODY[TEXT]<450000> {20}\r\n%s)", body[450_000:450_020]))
	})
}

func TestAppendRefused(t *testing.T) {
	each(t, func(h *fixture) {
		c := h.login()
		m := note("one")
		lit := fmt.Sprintf("{%d+}\r\n%s", len(m), m)
		c.no("APPEND Nowhere "+lit, "TRYCREATE]")
		c.no("APPEND Nowhere {100000}", "TRYCREATE]") // no continuation
		c.no("APPEND INBOX {52428801}", "TOOBIG]")
		c.no("APPEND INBOX (\\Frob) "+lit, "CANNOT]")
		c.no("APPEND INBOX ([Work]) "+lit, "CANNOT]")
		c.bad("APPEND INBOX " + lit + " more")
		c.ok("STATUS INBOX (MESSAGES)")
		c.got("* STATUS INBOX (MESSAGES 0)")
	})
}

func TestAppendOverQuota(t *testing.T) {
	each(t, func(h *fixture) {
		mb := 1
		_, err := h.mailboxes.Update(h.Context(), h.box.Account, h.box.ID, mailbox.Change{QuotaMB: &mb})
		h.must(err)
		c := h.login()
		m := note("big") + strings.Repeat("0123456789abcdef\r\n", 40_000)
		c.append("INBOX", "", m)
		c.no(fmt.Sprintf("APPEND INBOX {%d}", len(m)), "OVERQUOTA]")
		small := note("small") + strings.Repeat("0123456789abcdef\r\n", 3_000)
		for range 6 {
			c.append("INBOX", "", small)
		}
		c.no(fmt.Sprintf("APPEND INBOX {%d+}\r\n%s", len(small), small), "OVERQUOTA]")
		c.ok("STATUS INBOX (MESSAGES)")
		c.got("* STATUS INBOX (MESSAGES 7)")
	})
}
