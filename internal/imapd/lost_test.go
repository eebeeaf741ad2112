// SPDX-License-Identifier: Apache-2.0

package imapd_test

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/db/dbtest"
)

var (
	loseRow = db.SQL(`DELETE FROM blob WHERE id = (SELECT m.blob FROM message AS m JOIN folder_message AS f ON f.message = m.id WHERE f.uid = $1)`)
	cutRow  = db.SQL(`UPDATE blob SET bytes = SUBSTR(bytes, 1, 10)
		WHERE id = (SELECT m.blob FROM message AS m JOIN folder_message AS f ON f.message = m.id WHERE f.uid = $1)`)
)

// eachLoss runs f with a session that has three messages, for each way in which
// the bytes of the second can be lost.
func eachLoss(t *testing.T, f func(h *house, c *client)) {
	t.Helper()
	const small, large = 100, 100_000
	for name, loss := range map[string]struct {
		size int
		lose func(h *house, file string) error
	}{
		"row gone":  {small, func(h *house, _ string) error { dbtest.Exec(h, h.db, loseRow.With(2)); return nil }},
		"row cut":   {small, func(h *house, _ string) error { dbtest.Exec(h, h.db, cutRow.With(2)); return nil }},
		"file gone": {large, func(_ *house, file string) error { return os.Remove(file) }},
		"file cut":  {large, func(_ *house, file string) error { return os.Truncate(file, 10) }},
		"file unreadable": {large, func(_ *house, file string) error {
			return errors.Join(os.Remove(file), os.Symlink("/proc/self/mem", file))
		}}, // EIO
	} {
		t.Run(name, func(t *testing.T) {
			each(t, func(h *house) {
				c := h.login()
				c.append("INBOX", "", note("one"))
				c.append("INBOX", "", note("two")+strings.Repeat("x\r\n", loss.size/3))
				c.append("INBOX", "", note("three"))
				files, err := filepath.Glob(filepath.Join(h.files, "??", "*"))
				h.must(err)
				h.must(loss.lose(h, strings.Join(files, "")))
				c.ok("SELECT INBOX")
				f(h, c)
			})
		})
	}
}

// A message whose bytes are lost is left out of a FETCH of them, which says so at
// its end, gives all others, and names it in the log.
func TestFetchOfLost(t *testing.T) {
	eachLoss(t, func(h *house, c *client) {
		for _, items := range []string{"BODY.PEEK[HEADER.FIELDS (SUBJECT)]", "BODY.PEEK[1]", "BODY.PEEK[]<0.5>", "BINARY.PEEK[1]", "BINARY.SIZE[1]", "PREVIEW"} {
			c.no("FETCH 1:3 "+items, "SERVERBUG")
			c.got("* 1 FETCH (…)", "* 3 FETCH (…)")
		}
		c.no("FETCH 1:3 BODY[]", "SERVERBUG")
		c.got(`* 1 FETCH (FLAGS (\Seen…) BODY[] …`, `* 3 FETCH (FLAGS (\Seen…) BODY[] …`, `* 2 FETCH (UID 2 FLAGS (\Seen…))`)
		c.ok("FETCH 1:3 (ENVELOPE BODYSTRUCTURE)")
		c.got("* 1 FETCH (…)", "* 2 FETCH (…)", "* 3 FETCH (…)")
		if log := h.log.all(); !slices.ContainsFunc(log, func(line string) bool { return strings.Contains(line, "uid=2 ") }) {
			h.Errorf("logged %q", log)
		}
	})
}
