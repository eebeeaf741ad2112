// SPDX-License-Identifier: Apache-2.0

package imapd_test

import (
	"strings"
	"testing"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/db/dbtest"
)

// keywords are the responses that report a new keyword, the only one or the last of several.
func keywords(last string) []string {
	return []string{"* FLAGS (…" + last + ")", "* OK [PERMANENTFLAGS (…" + last + ` \*)] …`}
}

// A client with the folder open is told of a keyword before the first message with it.
func TestNewKeyword(t *testing.T) {
	each(t, func(h *fixture) {
		a := h.login()
		a.append("INBOX", "", note("one"))
		a.ok("SELECT INBOX")
		b, c := h.selected("INBOX"), h.login()
		c.ok("EXAMINE INBOX")
		a.ok("STORE 1 +FLAGS.SILENT (first)")
		a.got(keywords("first")...)
		a.ok("STORE 1 +FLAGS (second)")
		a.got(append(keywords("second"), `* 1 FETCH (UID 1 FLAGS (… first second))`)...)
		a.ok("STORE 1 -FLAGS (first second)")
		a.ok("STORE 1 +FLAGS (SECOND)")
		a.got(`* 1 FETCH (UID 1 FLAGS (… second))`)
		b.ok("FETCH 1 FLAGS")
		b.got("* 1 FETCH (FLAGS (…))", "* FLAGS (… first second)", "* OK [PERMANENTFLAGS (… first second \\*)] …", `* 1 FETCH (UID 1 FLAGS (…second))`)
		c.ok("NOOP") // PERMANENTFLAGS stays empty in a read-only folder
		c.got("* FLAGS (… first second)", `* 1 FETCH (UID 1 FLAGS (…second))`)
		b.append("INBOX", "(third) ", note("two"))
		b.got("* FLAGS (… first second third)", "* OK [PERMANENTFLAGS (…third \\*)] …", "* 2 EXISTS", "* … RECENT")
		a.ok("CLOSE")
		a.ok("NOOP")
		a.got()
	})
}

var (
	putKeywords = db.SQL(`UPDATE folder_message SET keywords = $2 WHERE uid = $1`)
	deleteBlobs = db.SQL(`DELETE FROM blob`)
	noKeywords  = db.SQL(`ALTER TABLE folder_message RENAME COLUMN keywords TO gone`)
)

// crowded gives n messages of a client more keywords than fit in memory.
func (h *fixture) crowded(c *client, n int) {
	h.Helper()
	for i := range n {
		c.append("INBOX", "", note("x"))
		dbtest.Exec(h, h.db, putKeywords.With(i+1, strings.TrimSpace(strings.Repeat(strings.Repeat("x", 1000)+" ", 1000+i)))) // 34 MB in all
	}
}

// Messages that become \Seen by a FETCH that can't return them are reported with their keywords
// too.
func TestSeenUnreadWithKeywords(t *testing.T) {
	each(t, func(h *fixture) {
		const n = 34
		a := h.login()
		h.crowded(a, n)
		a.ok("SELECT INBOX")
		dbtest.Exec(h, h.db, deleteBlobs.With())
		a.no("FETCH 34 BODY[]", "SERVERBUG")
		a.got(`* 34 FETCH (UID 34 FLAGS (\Seen … xxx…xxx))`)
	})
}

// If keywords to report can't be read the connection ends: changes are reported once, and a client
// that reconnects asks for missed ones.
func TestKeywordsUnread(t *testing.T) {
	each(t, func(h *fixture) {
		const n = 34
		a := h.login()
		h.crowded(a, n)
		a.ok("SELECT INBOX")
		b, c := h.selected("INBOX"), h.selected("INBOX")
		c.ok("STORE 34 +FLAGS.SILENT (\\Flagged)")
		dbtest.Exec(h, h.db, noKeywords.With())
		a.send("t IDLE\r\n")
		a.next("+ …")
		a.closed()
		b.send("t STORE 34 +FLAGS.SILENT (\\Seen)\r\n")
		b.closed()
	})
}
