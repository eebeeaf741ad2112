// SPDX-License-Identifier: Apache-2.0

package imapd_test

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
)

func TestSelect(t *testing.T) {
	each(t, func(h *fixture) {
		c := h.login()
		c.append("INBOX", `(\Seen) `, note("one"))
		c.append("INBOX", `($Work) `, note("two"))
		c.ok("SELECT INBOX", "READ-WRITE]")
		c.got(`* FLAGS (\Seen \Answered \Flagged \Deleted \Draft $Work)`,
			"* 2 EXISTS",
			"* 2 RECENT",
			"* OK [UNSEEN 2] …",
			`* OK [PERMANENTFLAGS (\Seen \Answered \Flagged \Deleted \Draft $Work \*)] …`,
			"* OK [UIDNEXT 3] …",
			"* OK [UIDVALIDITY …] …",
			"* OK [HIGHESTMODSEQ …] …", "* OK [MAILBOXID (F…)] …")
		c.ok("SELECT Sent (CONDSTORE)", "READ-WRITE]")
		c.has("* OK [CLOSED] …", "* 0 EXISTS")
		c.no("SELECT Nowhere", "NONEXISTENT]")
		c.got("* OK [CLOSED] …")
		c.bad("FETCH 1 FLAGS")
		c.bad("SELECT INBOX (QRESYNC (1 2))")
	})
}

func TestExamine(t *testing.T) {
	each(t, func(h *fixture) {
		c := h.login()
		c.append("INBOX", "", note("one"))
		c.ok("EXAMINE INBOX", "READ-ONLY]")
		c.has("* OK [PERMANENTFLAGS ()] …", "* 1 RECENT")
		c.no(`STORE 1 +FLAGS (\Seen)`, "READ-ONLY]")
		c.no("EXPUNGE", "READ-ONLY]")
		c.no("MOVE 1 Trash", "READ-ONLY]")
		c.ok("FETCH 1 BODY[TEXT]")
		c.ok("FETCH 1 FLAGS")
		c.got(`* 1 FETCH (FLAGS (\Recent))`)
		c.ok("COPY 1 Archive", "COPYUID ")
		c.ok("CLOSE")
		c.ok("SELECT INBOX")
		c.has("* 1 EXISTS", "* 1 RECENT") // EXAMINE leaves \Recent to the next
		c.ok("SELECT INBOX")
		c.has("* 0 RECENT")
	})
}

// While mail arrives, SELECT reports a consistent number of messages and UIDNEXT.
func TestSelectWhileMailArrives(t *testing.T) {
	each(t, func(h *fixture) {
		const messages = 150
		c := h.login()
		var writing sync.WaitGroup
		for w := range 2 {
			writer := h.login()
			writing.Go(func() {
				text := note(fmt.Sprint(w))
				for range messages {
					_, err := fmt.Fprintf(writer.nc, "w APPEND INBOX {%d+}\r\n%s\r\n", len(text), text)
					if err == nil {
						_, err = writer.tryAnswer()
					}
					if err != nil {
						t.Error(err)
						return
					}
				}
			})
		}
		for exists := 0; exists < 2*messages && !t.Failed(); {
			c.ok("SELECT INBOX")
			exists = -1
			for _, line := range c.untagged {
				var n int
				var word string
				if _, err := fmt.Sscanf(line, "* %d %s", &n, &word); err != nil || word != "EXISTS" {
					continue
				}
				if exists >= 0 {
					t.Errorf("%d messages, and then %d", exists, n)
				}
				exists = n
			}
			next := fmt.Sprintf("* OK [UIDNEXT %d]", exists+1)
			if !slices.ContainsFunc(c.untagged, func(line string) bool { return strings.HasPrefix(line, next) }) {
				t.Errorf("with %d messages: %q", exists, c.untagged)
			}
		}
		writing.Wait()
	})
}
