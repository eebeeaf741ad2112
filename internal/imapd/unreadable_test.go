// SPDX-License-Identifier: Apache-2.0

package imapd_test

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/db/dbtest"
)

var (
	// Makes one row unreadable: PostgreSQL fails on the division, and SQLite's NULL can't be used.
	hideRows = db.SQL(`ALTER TABLE blob RENAME TO sound`)
	spoilRow = db.SQL(`CREATE VIEW blob AS SELECT b.id, b.size / (CASE WHEN f.uid = 2 THEN 0 ELSE 1 END) AS size, b.file, b.bytes
		FROM sound AS b JOIN message AS m ON m.blob = b.id JOIN folder_message AS f ON f.message = m.id`)
	loseRow = db.SQL(`DELETE FROM blob WHERE id = (SELECT m.blob FROM message AS m JOIN folder_message AS f ON f.message = m.id WHERE f.uid = $1)`)
	cutRow  = db.SQL(`UPDATE blob SET bytes = SUBSTR(bytes, 1, 10)
		WHERE id = (SELECT m.blob FROM message AS m JOIN folder_message AS f ON f.message = m.id WHERE f.uid = $1)`)
	spoilStructure = db.SQL(`UPDATE message SET structure = $2 WHERE id = (SELECT message FROM folder_message WHERE uid = $1)`)
	spoilEnvelope  = db.SQL(`UPDATE message SET envelope = $2 WHERE id = (SELECT message FROM folder_message WHERE uid = $1)`)
	mistakeOther   = db.SQL(`UPDATE message SET structure = (SELECT m.structure FROM message AS m JOIN folder_message AS f ON f.message = m.id WHERE f.uid = $2)
		WHERE id = (SELECT message FROM folder_message WHERE uid = $1)`)
	knownAnswers = db.SQL(`SELECT COUNT(*) FROM message WHERE LENGTH(reply_references) > 0`)
)

// eachLoss runs f with a session that has three messages, for each way in which the bytes of the
// second one can be lost.
func eachLoss(t *testing.T, f func(h *fixture, c *client)) {
	t.Helper()
	const small, large = 100, 100_000
	for name, loss := range map[string]struct {
		size int
		lose func(h *fixture, file string) error
	}{
		"row gone": {small, func(h *fixture, _ string) error { dbtest.Exec(h, h.db, loseRow.With(2)); return nil }},
		"row unreadable": {small, func(h *fixture, _ string) error {
			dbtest.Exec(h, h.db, hideRows.With())
			dbtest.Exec(h, h.db, spoilRow.With())
			return nil
		}},
		"row cut":   {small, func(h *fixture, _ string) error { dbtest.Exec(h, h.db, cutRow.With(2)); return nil }},
		"file gone": {large, func(_ *fixture, file string) error { return os.Remove(file) }},
		"file cut":  {large, func(_ *fixture, file string) error { return os.Truncate(file, 10) }},
		"file unreadable": {large, func(_ *fixture, file string) error {
			return errors.Join(os.Remove(file), os.Symlink("/proc/self/mem", file))
		}}, // EIO
	} {
		t.Run(name, func(t *testing.T) {
			each(t, func(h *fixture) {
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

// A message whose bytes are lost is left out of a FETCH of them. The FETCH reports that at its end,
// returns all others, and logs the message.
func TestFetchOfLost(t *testing.T) {
	eachLoss(t, func(h *fixture, c *client) {
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

// A search that would have to read it returns all others, and reports at its end that there may be
// more. A search that needs no bytes finds it.
func TestSearchOfLost(t *testing.T) {
	eachLoss(t, func(h *fixture, c *client) {
		c.ok("ENABLE CONDSTORE")
		c.ok("SEARCH RETURN (SAVE) ALL")
		for _, x := range []struct{ command, want string }{
			{"SEARCH TEXT alice", "* SEARCH 1 3"},
			{"UID SEARCH NOT BODY zebra", "* SEARCH 1 3"},
			{"SEARCH HEADER X-None x", "* SEARCH"},
			{"SEARCH TEXT alice MODSEQ 1", "* SEARCH 1 3 (MODSEQ …)"},
			{"SEARCH RETURN (MIN MAX COUNT ALL) BODY three", `* ESEARCH (TAG …) MIN 3 MAX 3 ALL 3 COUNT 1`},
			{"SEARCH RETURN (PARTIAL 1:10) TEXT alice", `* ESEARCH (TAG …) PARTIAL (1:10 1,3)`},
			{"SORT (REVERSE ARRIVAL) UTF-8 TEXT alice", "* SORT 3 1"},
			{"SORT RETURN (COUNT) (REVERSE ARRIVAL) UTF-8 TEXT alice", "* ESEARCH (TAG …) COUNT 2"},
			{"THREAD REFERENCES UTF-8 TEXT alice", "* THREAD (1)(3)"},
		} {
			c.no(x.command, "SERVERBUG")
			c.got(x.want)
		}
		for command, want := range map[string]string{
			"SEARCH SUBJECT two": "* SEARCH 2", "SEARCH OR UID 2 BODY zebra": "* SEARCH 2", "SEARCH 1,3 BODY three": "* SEARCH 3", "SEARCH $": "* SEARCH 1 2 3",
		} {
			c.ok(command)
			c.got(want)
		}
		c.no("SEARCH RETURN (SAVE) TEXT alice", "SERVERBUG")
		c.got()
		c.ok("SEARCH $")
		c.got("* SEARCH")
		if log := h.log.all(); !slices.ContainsFunc(log, func(line string) bool { return strings.Contains(line, "searching a message") }) {
			h.Errorf("logged %q", log)
		}
	})
}

// A large message whose beginning can't be read does not prevent a listing of the other headers. If
// a read fails within its response the connection ends, without any other response in between.
func TestFetchOfUnreadHead(t *testing.T) {
	const size = 4<<20 + 4<<10 // in the memory of a process there is nothing at 0, and the program here
	memory, err := os.Open("/proc/self/mem")
	if err != nil {
		t.Fatal(err)
	}
	defer memory.Close() //nolint:errcheck // only read
	if _, err := memory.ReadAt(make([]byte, 1), size-1); err != nil {
		t.Fatal(err)
	}
	each(t, func(h *fixture) {
		c := h.login()
		text := note("one")
		c.append("INBOX", "", text+strings.Repeat("x", size-len(text)))
		c.append("INBOX", "", note("two"))
		files, err := filepath.Glob(filepath.Join(h.files, "??", "*"))
		h.must(err)
		h.must(errors.Join(os.Remove(files[0]), os.Symlink("/proc/self/mem", files[0])))
		c.ok("SELECT INBOX")
		for range 11 {
			c.ok("COPY 2:* INBOX")
		}
		c.ok("CLOSE")
		c.ok("SELECT INBOX")
		c.no("FETCH 1:* BODY.PEEK[HEADER.FIELDS (SUBJECT)]", "SERVERBUG")
		if len(c.untagged) != 1<<11 {
			h.Fatalf("%d answers", len(c.untagged))
		}
		c.no("FETCH 1:2 BODY.PEEK[HEADER]", "SERVERBUG")
		c.got("* 2 FETCH …")
		c.no("SEARCH 1:2 TEXT two", "SERVERBUG")
		c.got("* SEARCH 2")
		logged := len(h.log.all())
		c.send("x FETCH 1:* BODY[TEXT]\r\n")
		if rest, _ := io.ReadAll(c.br); strings.Contains(string(rest), "FETCH (UID") {
			h.Errorf("%d bytes: %.200q", len(rest), rest)
		}
		if log := h.log.all()[logged:]; !slices.ContainsFunc(log, func(line string) bool {
			return strings.Contains(line, "reading a message") && strings.Contains(line, "uid=1 ")
		}) {
			h.Errorf("logged %q", log)
		}
	})
}

// THREAD returns all messages even if the references of one were not stored and can't be read. It
// stores them only once they were read.
func TestThreadOfLost(t *testing.T) {
	eachLoss(t, func(h *fixture, c *client) {
		dbtest.Exec(h, h.db, forgetAnswers.With([]byte{}))
		c.ok("THREAD REFERENCES UTF-8 ALL")
		c.got("* THREAD (1)(2)(3)")
		var n int
		h.must(h.db.One(h.Context(), knownAnswers.With(), &n))
		if n != 2 {
			h.Errorf("of %d messages it is known what they answer", n)
		}
		if log := h.log.all(); !slices.ContainsFunc(log, func(line string) bool { return strings.Contains(line, "what a message answers") }) {
			h.Errorf("logged %q", log)
		}
	})
}

// A structure that can't be decoded, or belongs to another message, is computed again from the
// bytes. If these are lost too, the message is left out.
func TestSpoiltStructure(t *testing.T) {
	each(t, func(h *fixture) {
		c := h.login()
		c.append("INBOX", "", note("one"))
		c.append("INBOX", "", note("two")+"more of it: needle\r\n")
		c.append("INBOX", "", note("three"))
		c.ok("SELECT INBOX")
		const items = "(BODY BODYSTRUCTURE)"
		c.ok("FETCH 2 " + items)
		was := c.untagged[0]
		for _, spoil := range []db.Statement{spoilStructure.With(2, []byte("?")), mistakeOther.With(2, 1)} {
			dbtest.Exec(h, h.db, spoil)
			c.ok("FETCH 1:3 " + items)
			c.got("* 1 FETCH (BODY …", was, "* 3 FETCH (BODY …")
			c.ok("SEARCH BODY needle")
			c.got("* SEARCH 2")
		}
		dbtest.Exec(h, h.db, loseRow.With(2))
		c.no("FETCH 1:3 (UID BODYSTRUCTURE)", "SERVERBUG")
		c.got("* 1 FETCH (…)", "* 3 FETCH (…)")
	})
}

// With an invalid ENVELOPE, a client could not parse the responses. It is computed again from the
// bytes. If these are lost too, the message is left out.
func TestSpoiltEnvelope(t *testing.T) {
	each(t, func(h *fixture) {
		c := h.login()
		for _, text := range []string{"one", "two", "three"} {
			c.append("INBOX", "", note(text))
		}
		c.ok("SELECT INBOX")
		c.ok("FETCH 2 ENVELOPE")
		was := c.untagged[0]
		for _, spoilt := range []string{"", "(NIL \"two", "(NIL {9}\r\n"} {
			dbtest.Exec(h, h.db, spoilEnvelope.With(2, []byte(spoilt)))
			c.ok("FETCH 1:3 ENVELOPE")
			c.got("* 1 FETCH (ENVELOPE …", was, "* 3 FETCH (ENVELOPE …")
		}
		dbtest.Exec(h, h.db, loseRow.With(2))
		c.no("FETCH 1:3 (UID ENVELOPE)", "SERVERBUG")
		c.got("* 1 FETCH (…)", "* 3 FETCH (…)")
	})
}
