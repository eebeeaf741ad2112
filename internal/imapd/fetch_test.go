// SPDX-License-Identifier: Apache-2.0

package imapd_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/db/dbtest"
	"github.com/mailstead/mailstead/internal/folder"
	"github.com/mailstead/mailstead/internal/imapd"
)

func lit(s string) string { return fmt.Sprintf("{%d}\r\n%s", len(s), s) }

func TestFetchItems(t *testing.T) {
	each(t, func(h *fixture) {
		c := h.login()
		m := note("one")
		c.append("INBOX", `(\Answered) " 2-Mar-2026 09:22:33 +0000" `, m)
		c.ok("SELECT INBOX")
		const envelope = `ENVELOPE ("Mon, 2 Mar 2026 10:00:00 +0100" "one" (("Bob Smith" NIL "bob" "demo.test")) (("Bob Smith" NIL "bob" "demo.test")) (("Bob Smith" NIL "bob" "demo.test")) ((NIL NIL "alice" "demo.test")) NIL NIL NIL "<one@demo.test>")`
		body := `("text" "plain" ("charset" "us-ascii") NIL NIL "7bit" 30 1`
		fast := fmt.Sprintf(`FLAGS (\Answered \Recent) INTERNALDATE " 2-Mar-2026 09:22:33 +0000" RFC822.SIZE %d`, len(m))
		for _, x := range []struct{ items, want string }{
			{"FAST", fast},
			{"ALL", fast + " " + envelope},
			{"(ENVELOPE)", envelope},
			{"BODY", "BODY " + body + ")"},
			{"BODYSTRUCTURE", "BODYSTRUCTURE " + body + " NIL NIL NIL NIL)"},
			{"(UID RFC822.SIZE)", fmt.Sprintf("UID 1 RFC822.SIZE %d", len(m))},
			{"RFC822.HEADER", "RFC822.HEADER " + lit(m[:strings.Index(m, "\r\n\r\n")+4])},
			{"BODY.PEEK[]<0.5>", "BODY[]<0> " + lit("From:")},
			{"BODY.PEEK[]<100000.5>", "BODY[]<100000> " + lit("")},
			{"BODY.PEEK[HEADER.FIELDS (subject X-None)]", "BODY[HEADER.FIELDS (subject X-None)] " + lit("Subject: one\r\n\r\n")},
			{"BODY.PEEK[HEADER.FIELDS.NOT (From To Date Message-ID)]", "BODY[HEADER.FIELDS.NOT (From To Date Message-ID)] " + lit("Subject: one\r\n\r\n")},
			{"BODY.PEEK[1]", "BODY[1] " + lit("Dear Alice, this is one.\r\n")},
			{"BODY.PEEK[2]", "BODY[2] NIL"},
		} {
			c.ok("FETCH 1 " + x.items)
			if !strings.EqualFold(strings.ReplaceAll(c.untagged[0], "30 1", "26 1"), strings.ReplaceAll("* 1 FETCH ("+x.want+")", "30 1", "26 1")) {
				t.Errorf("%s: got\n%s\nwant\n%s", x.items, c.untagged[0], x.want)
			}
		}
		c.ok("UID FETCH 1 FLAGS")
		c.got(`* 1 FETCH (UID 1 FLAGS (\Answered \Recent))`)
		c.ok("UID FETCH 5:* UID")
		c.got("* 1 FETCH (UID 1)")
		c.ok("UID FETCH 7 FLAGS")
		c.got()
		for _, b := range []string{"FETCH 2 UID", "FETCH 1 FROB", "FETCH 1 (BINARY[1.MIME])", "FETCH 1 (BINARY[HEADER])", "FETCH 1 (BINARY.SIZE[1]<0.5>)", "FETCH 1 PREVIEW (FROB)", "FETCH 1 UID (PARTIAL 1:1)", "FETCH 1 ()", "FETCH 0 UID"} {
			c.bad(b)
		}
	})
}

func TestFetchSections(t *testing.T) {
	each(t, func(h *fixture) {
		c := h.login()
		c.append("INBOX", "", mail)
		c.ok("SELECT INBOX")
		inner := mail[strings.Index(mail, "From: inner"):strings.Index(mail, "\r\n--outer\r\nContent-Type: application")]
		innerHead, innerBody, _ := strings.Cut(inner, "\r\n\r\n")
		for section, want := range map[string]string{
			"1":                            "Gr=C3=BC=C3=9Fe vom Meer, and a secret word: xylo=\r\nphone.",
			"1.MIME":                       "Content-Type: text/plain; charset=utf-8\r\nContent-Transfer-Encoding: quoted-printable\r\n\r\n",
			"2":                            inner,
			"2.HEADER":                     innerHead + "\r\n\r\n",
			"2.TEXT":                       innerBody,
			"2.1":                          "inner text",
			"2.2":                          "<p>inner html</p>",
			"2.HEADER.FIELDS (Subject)":    "Subject: The inner one\r\n\r\n",
			"3":                            "AAECAwQF",
			"HEADER.FIELDS (\"X-Colour\")": "X-Colour: dark blue\r\n\r\n",
		} {
			c.ok("FETCH 1 BODY.PEEK[" + section + "]")
			c.got("* 1 FETCH (BODY[…] " + lit(want) + ")")
		}
		c.ok("FETCH 1 (BODY.PEEK[1.HEADER] BODY.PEEK[4] BODY.PEEK[2.3])")
		c.got("* 1 FETCH (BODY[1.HEADER] NIL BODY[4] NIL BODY[2.3] NIL)")
	})
}

func TestFetchSetsSeen(t *testing.T) {
	each(t, func(h *fixture) {
		a := h.login()
		for _, s := range []string{"one", "two", "three"} {
			a.append("INBOX", "", note(s))
		}
		a.ok("SELECT INBOX")
		b := h.selected("INBOX")
		a.ok("FETCH 1 BODY.PEEK[TEXT]")
		a.ok("FETCH 1 FLAGS")
		a.got(`* 1 FETCH (FLAGS (\Recent))`)
		a.ok("FETCH 1:2 BODY[TEXT]<0.4>")
		a.got(`* 1 FETCH (FLAGS (\Seen \Recent) BODY[TEXT]<0> `+lit("Dear")+`)`, `* 2 FETCH (FLAGS (\Seen \Recent) BODY[TEXT]<0> `+lit("Dear")+`)`)
		a.ok("FETCH 1:2 RFC822.TEXT")
		a.got("* 1 FETCH (RFC822.TEXT …)", "* 2 FETCH (RFC822.TEXT …)")
		b.ok("NOOP")
		b.got(`* 1 FETCH (UID 1 FLAGS (\Seen))`, `* 2 FETCH (UID 2 FLAGS (\Seen))`)
	})
}

// A literal can't contain NUL, but the size must stay the same.
func TestFetchNUL(t *testing.T) {
	each(t, func(h *fixture) {
		c := h.login()
		c.append("INBOX", "", "Subject: x\r\n\r\na\x00b\r\n")
		c.ok("SELECT INBOX")
		c.ok("FETCH 1 (BODY[TEXT] BODY[1]<1.1>)")
		c.got("* 1 FETCH (… BODY[TEXT] " + lit("a\x80b\r\n") + " BODY[1]<1> " + lit("\x80") + ")")
	})
}

// If only some messages of a FETCH could be marked as seen, it reports these.
func TestFetchMarksSome(t *testing.T) {
	eachWith(t, func(o *imapd.Options) {
		folders := o.Folders.Options
		folders.BatchSize = 1
		o.Folders = folder.New(folders)
	}, func(h *fixture) {
		c := h.login()
		c.append("INBOX", "", note("one"))
		c.append("INBOX", "", note("two"))
		c.ok("SELECT INBOX")
		if h.db.Engine() == db.SQLite {
			dbtest.Exec(h, h.db, db.SQL("CREATE TRIGGER no_room BEFORE UPDATE ON folder_message WHEN new.uid = 2 BEGIN SELECT RAISE(ABORT, 'full'); END").With())
		} else {
			dbtest.Exec(h, h.db, db.SQL("CREATE FUNCTION no_room() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RAISE EXCEPTION USING ERRCODE = ''53100''; END'").With(),
				db.SQL("CREATE TRIGGER no_room BEFORE UPDATE ON folder_message FOR EACH ROW WHEN (new.uid = 2) EXECUTE FUNCTION no_room()").With())
		}
		c.ok("FETCH 1:2 BODY[]")
		c.got(`* 1 FETCH (FLAGS (\Seen…) BODY[] …`, `* 2 FETCH (BODY[] …`)
		c.ok("FETCH 1:2 FLAGS")
		c.got(`* 1 FETCH (FLAGS (\Seen…))`, `* 2 FETCH (FLAGS (\Recent))`)
	})
}
