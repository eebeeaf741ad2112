// SPDX-License-Identifier: Apache-2.0

package imapd_test

import (
	"strings"
	"testing"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/db/dbtest"
)

// keywords are the answers that tell of a new keyword, the only one or the
// last of several.
func keywords(last string) []string {
	return []string{"* FLAGS (…" + last + ")", "* OK [PERMANENTFLAGS (…" + last + ` \*)] …`}
}

// Whoever has a folder open is told of a keyword before the first message that
// has it.
func TestNewKeyword(t *testing.T) {
	each(t, func(h *house) {
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
		c.ok("NOOP") // where nothing can be changed PERMANENTFLAGS stay empty
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

// crowded gives a client's messages, n of them, more keywords than are kept in memory.
func (h *house) crowded(c *client, n int) {
	h.Helper()
	for i := range n {
		c.append("INBOX", "", note("x"))
		dbtest.Exec(h, h.db, putKeywords.With(i+1, strings.TrimSpace(strings.Repeat(strings.Repeat("x", 1000)+" ", 1000+i)))) // 34 MB in all
	}
}

// What becomes \Seen by a FETCH that can't answer for it is told with its keywords
// too.
func TestSeenUnreadWithKeywords(t *testing.T) {
	each(t, func(h *house) {
		const n = 34
		a := h.login()
		h.crowded(a, n)
		a.ok("SELECT INBOX")
		dbtest.Exec(h, h.db, deleteBlobs.With())
		a.no("FETCH 34 BODY[]", "SERVERBUG")
		a.got(`* 34 FETCH (UID 34 FLAGS (\Seen … xxx…xxx))`)
	})
}

// Where keywords that are to be told can't be read the connection ends: changes
// are told once, and whoever comes back asks for what he has missed.
func TestKeywordsUnread(t *testing.T) {
	each(t, func(h *house) {
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
