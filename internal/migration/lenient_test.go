// SPDX-License-Identifier: Apache-2.0

package migration_test

import (
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/emersion/go-imap/v2"

	"github.com/mailstead/mailstead/client"
	"github.com/mailstead/mailstead/internal/server/servertest"
)

// written is a source that gives the responses in about for its messages, and those in otherwise
// for other commands.
func written(about []string, otherwise map[string]string) func(c net.Conn) {
	return few(len(about), func(_ net.Conn, tag, command string) string {
		for begin, said := range otherwise {
			if strings.HasPrefix(command, begin) {
				return said + tag + " OK done\r\n"
			}
		}
		if !strings.Contains(command, "FETCH") {
			return ""
		}
		said := ""
		for _, i := range numbers(command, len(about)) {
			text := fmt.Sprintf("Date: Sun, 5 Mar 2017 08:00:00 +0000\r\nSubject: %d\r\n\r\n", i)
			if strings.Contains(command, "BODY") {
				said += fmt.Sprintf("* %d FETCH (UID %d BODY[] {%d}\r\n%s)\r\n", i, i, len(text), text)
			} else {
				said += fmt.Sprintf("* %d FETCH (UID %d %s)\r\n", i, i, about[i-1])
			}
		}
		return said + tag + " OK done\r\n"
	})
}

// A message with one odd line, from about, is copied, and the report notes the oddity.
func TestWrittenOddly(t *testing.T) {
	const date = `INTERNALDATE " 5-Jun-2018 10:20:30 +0200"`
	want := func(flags, date, note string) [3]string { return [3]string{flags, date, note} }
	const exact, sent = "2018-06-05 08:20:30", "2017-03-05 08:00:00"
	const left, odd, none = "is left out", "another form", "no date that can be read"
	cases := []struct {
		about string
		want  [3]string
	}{
		{`FLAGS (\Seen $Label1) ` + date, want(`$Label1 \Seen`, exact, "")},
		{`FLAGS (\Seen [Invoices] plain) ` + date, want(`\Seen plain`, exact, "The keyword [Invoices] "+left)},
		{`FLAGS (a]b \Flagged) ` + date, want(`\Flagged`, exact, "The keyword a]b "+left)},
		{`FLAGS ("in quotes" "Quoted" \Draft) ` + date, want(`Quoted \Draft`, exact, "The keyword in quotes "+left)},
		{`FLAGS (50% a*b \Answered) ` + date, want(`\Answered`, exact, "The keyword 50% "+left)},
		{"FLAGS (M\xc3\xbcller \\Seen) " + date, want(`\Seen`, exact, "The keyword Müller "+left)},
		{`FLAGS (\Custom \Recent \SEEN) ` + date, want(`\Seen`, exact, `The keyword \Custom `+left)},
		{`FLAGS (` + strings.Repeat("x", 101) + `) ` + date, want(``, exact, left)},
		{`FLAGS ({5}` + "\r\n" + `lit)( \Seen) ` + date, want(`\Seen`, exact, "The keyword lit)( "+left)},
		{`FLAGS (  \Seen   a ) ` + date, want(`\Seen a`, exact, "")},
		{`FLAGS NIL ` + date, want(``, exact, "")},
		{`flags () internaldate "05-jun-2018 10:20:30 +0200" MODSEQ (7) X-NEW NIL Y "(" Z (a (b "c)"))`, want(``, exact, "")},
		{`FLAGS () RFC822.SIZE NIL ` + date, want(``, exact, "")},
		{`FLAGS () RFC822.SIZE -1 ` + date + ` ENVELOPE ("x" NIL` + ` NIL) BODYSTRUCTURE (odd)`, want(``, exact, "")},
		{`FLAGS () INTERNALDATE "5-Jun-2018 08:20:30"`, want(``, exact, odd)},
		{`FLAGS () INTERNALDATE "5-Jun-2018 08:20:30 GMT"`, want(``, exact, odd)},
		{`FLAGS () INTERNALDATE "5-Jun-2018 08:20:60 +0000"`, want(``, "2018-06-05 08:20:59", odd)},
		{`FLAGS () INTERNALDATE "Tue, 05 Jun 2018 10:20:30 +0200"`, want(``, exact, odd)},
		{`FLAGS () INTERNALDATE {26}` + "\r\n" + ` 5-Jun-2018 10:20:30 +0200`, want(``, exact, "")},
		{`FLAGS () INTERNALDATE "00-Jan-0000 00:00:00 +0000"`, want(``, sent, none)},
		{`FLAGS () INTERNALDATE ""`, want(``, sent, none)},
		{`FLAGS () INTERNALDATE NIL`, want(``, sent, none)},
		{`FLAGS ()`, want(``, sent, none)},
		{`FLAGS (\Flagged) INTERNALDATE "01-Jan-1970 00:00:00 +0000"`, want(`\Flagged`, "1970-01-01 00:00:00", "")},
	}
	var about []string
	for _, c := range cases {
		about = append(about, c.about)
	}
	servertest.Each(t, func(t *testing.T, s *servertest.Server) {
		m := &mover{t, s, clientOf(t, s), nil}
		box := m.box("odd", 0)
		d := m.ends(box, dovecotSource(serve(t, written(about, nil)), "ann", "none"), "completed", "", int64(len(cases)), 0, 0)
		here := signIn(t, s.Addr("imaps"), "odd@demo.test", dovecotPassword)
		if _, err := here.Select("INBOX", nil).Wait(); err != nil {
			t.Fatal(err)
		}
		all, err := here.Fetch(imap.SeqSet{{Start: 1, Stop: 0}}, &imap.FetchOptions{Flags: true, InternalDate: true}).Collect()
		if err != nil || len(all) != len(cases) {
			t.Fatal(len(all), err)
		}
		for i, c := range cases {
			var flags []string
			for _, f := range all[i].Flags {
				if f != `\Recent` {
					flags = append(flags, string(f))
				}
			}
			slices.Sort(flags)
			if got := strings.Join(flags, " "); got != c.want[0] {
				t.Errorf("%s: flags %s", c.about, got)
			}
			// The start of 1970 is stored one unit later.
			if got := all[i].InternalDate.UTC().Truncate(time.Second).Format(time.DateTime); got != c.want[1] {
				t.Errorf("%s: date %s", c.about, got)
			}
			if c.want[2] != "" && !slices.ContainsFunc(d.Notes, func(n client.MigrationNote) bool { return strings.Contains(n.Detail, c.want[2]) }) {
				t.Errorf("%s: no note %q in %+v", c.about, c.want[2], d.Notes)
			}
		}
		for _, n := range d.Notes {
			if strings.Contains(n.Detail, odd) && (n.Messages != 4 || n.UID != 15 || n.Folder != "INBOX") {
				t.Errorf("%+v", n)
			}
		}
	})
}

// Other odd responses of a source prevent no copying.
func TestSaidOddly(t *testing.T) {
	s := servertest.Start(t, servertest.MigrationWait(time.Millisecond))
	const exists = "* 2 EXISTS\r\n* OK [UIDVALIDITY 1] x\r\n* OK [UIDNEXT 3] x\r\n"
	for what, otherwise := range map[string]map[string]string{
		"capabilities": {"CAPABILITY": "* CAPABILITY  IMAP4rev1 (X) \"Y\" AUTH=PLAIN ]\r\n"},
		"signing in":   {"LOGIN": "* OK [ALERT]\r\n* NO\r\n\r\n* ID NIL\r\n* OK [open\r\n* OK [CAPABILITY IMAP4rev1 (] x\r\n"},
		"opening": {"EXAMINE": "* FLAGS (\\Seen [x] \"y\" \\*)\r\n* OK [PERMANENTFLAGS ([x] \"y\")] z\r\n* ok [uidvalidity 1] x\r\n* ok [uidnext many] x\r\n" +
			"* 2 exists\r\n* 0 RECENT\r\n* OK [UNSEEN NIL] x\r\n* OK [HIGHESTMODSEQ] x\r\n* OK [X)] x\r\n* 99999999999 EXISTS\r\n"},
		"lists":    {"LIST": "* LIST NIL NIL INBOX\r\n* LSUB () \"/\" INBOX\r\n* XLIST () \"/\" x\r\n* LIST (\\Noselect) \"/\" \"\"\r\n* LIST\r\n* LIST (\r\n* LIST () \"//\"\r\n"},
		"figures":  {"STATUS": "* STATUS INBOX (MESSAGES NIL X)\r\n* STATUS INBOX (MESSAGES 99999999999)\r\n* STATUS INBOX\r\n* STATUS INBOX (MESSAGES -1 SIZE (1))\r\n* STATUS\r\n"},
		"news":     {"EXAMINE": exists + "* 1 FETCH (FLAGS ([x]))\r\n* 2 FETCH (UID 2)\r\n* 1 EXPUNGE\r\n* VANISHED 7\r\n* SORT 1\r\n* GARBAGE (\r\n* 7\r\n* X-NEW {3}\r\na\r\n\r\n"},
		"searches": {"UID SEARCH": "* SEARCH\r\n* SEARCH 1 2 \r\n* SEARCH NIL\r\n"},
		"farewell": {"LOGOUT": "* BYE\r\n"},
	} {
		t.Run(what, func(t *testing.T) {
			m := &mover{t, s, clientOf(t, s), nil}
			date := `FLAGS () INTERNALDATE " 5-Jun-2018 10:20:30 +0200" RFC822.SIZE 12`
			d := m.ends(m.box("said"+strings.Split(what, " ")[0], 0), dovecotSource(serve(t, written([]string{date, date}, otherwise)), "ann", "none"), "completed", "", 2, 0, 0)
			if len(d.Failures) != 0 || len(d.Notes) != 0 {
				t.Errorf("%+v %+v", d.Failures, d.Notes)
			}
		})
	}
}

// Folders are found in every form of list response.
func TestListedOddly(t *testing.T) {
	s := servertest.Start(t, servertest.MigrationWait(time.Millisecond))
	m := &mover{t, s, clientOf(t, s), nil}
	date := `FLAGS () INTERNALDATE " 5-Jun-2018 10:20:30 +0200" RFC822.SIZE 12`
	addr := serve(t, written([]string{date}, map[string]string{"LIST": "* LIST () \"/\" INBOX\r\n" +
		"* list (\\hasnochildren) / Work\r\n" +
		"* LIST (\"\\\\Sent\" [odd]) \"/\" Gesendete Objekte (alt)\r\n" +
		"* LIST () \"/\" {6}\r\nlit{3}\r\n* LIST () {1}\r\n/ {5}\r\na/\"b\\\r\n" +
		"* LIST () \"\" NIL\r\n" +
		"* LIST () \"/\" ext (CHILDINFO (\"SUBSCRIBED\"))\r\n* LIST () \"/\" \"ext2\" (\"CHILDINFO\" (\"SUBSCRIBED\") oldname (x))\r\n"}))
	d := m.ends(m.box("lists", 0), dovecotSource(addr, "ann", "none"), "completed", "", 8, 0, 0)
	var got []string
	for _, f := range d.Folders {
		got = append(got, f.Name+">"+f.Target)
	}
	slices.Sort(got)
	want := []string{`Gesendete Objekte (alt)>Sent`, "INBOX>INBOX", "NIL>NIL", "Work>Work", `a/"b\>a/"b\`, "ext2>ext2", "ext>ext", "lit{3}>lit{3}"}
	if !slices.Equal(got, want) || len(d.Failures) > 0 {
		t.Errorf("%q %+v", got, d.Failures)
	}
}

// A text may arrive in any string form.
func TestTextsWrittenOddly(t *testing.T) {
	s := servertest.Start(t, servertest.MigrationWait(time.Millisecond))
	m := &mover{t, s, clientOf(t, s), nil}
	text := "Subject: x\r\n\r\n"
	forms := []string{
		fmt.Sprintf("UID %%d BODY[] {%d}\r\n%s", len(text), text),
		fmt.Sprintf("UID %%d body[] {%d+}\r\n%s", len(text), text),
		fmt.Sprintf("UID %%d RFC822 ~{%d}\r\n%s", len(text), text),
		`FLAGS ([x] "y") UID %d BODY[] "Subject: \"x\""`,
		fmt.Sprintf("FLAGS ([x]) UID %%d BODY[] {%d}\r\n%s FLAGS (\"BODY[] {5}\")", len(text), text),
		`UID %d BODY[] NIL`,
		`UID %d BODY[] {0}` + "\r\n",
	}
	addr := serve(t, few(len(forms), func(_ net.Conn, tag, command string) (said string) {
		if !strings.Contains(command, "BODY.PEEK[]") {
			return ""
		}
		for _, i := range numbers(command, len(forms)) {
			said += fmt.Sprintf("* %d FETCH (FLAGS (\"a b\"))\r\n* %d FETCH ("+forms[i-1]+")\r\n", i, i, i)
		}
		return said + tag + " OK done\r\n"
	}))
	d := m.ends(m.box("texts", 0), dovecotSource(addr, "ann", "none"), "completed", "", int64(len(forms)-1), 0, 1)
	if len(d.Failures) != 1 || d.Failures[0].UID != 6 {
		t.Errorf("%+v", d.Failures)
	}
}
