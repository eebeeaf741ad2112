// SPDX-License-Identifier: Apache-2.0

package migration_test

import (
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/mailstead/mailstead/internal/db/dbtest"
	"github.com/mailstead/mailstead/internal/server/servertest"
)

// fetched returns the responses to a FETCH of messages 1 to n, of their metadata or texts. answer
// returns one of them.
func fetched(command string, n int, answer func(number int, text string) string) (said string) {
	of := strings.Fields(strings.TrimPrefix(command, "UID "))[1]
	for i := 1; i <= n; i++ {
		if !strings.Contains(of, ":") && !strings.Contains(","+of+",", fmt.Sprintf(",%d,", i)) {
			continue
		}
		text := fmt.Sprintf("Subject: %d\r\n\r\n", i)
		if strings.Contains(command, "BODY.PEEK[]") {
			said += answer(i, text)
		} else {
			said += fmt.Sprintf("* %d FETCH (UID %d FLAGS () INTERNALDATE \" 1-Jan-2001 00:00:00 +0000\" RFC822.SIZE %d)\r\n", i, i, len(text))
		}
	}
	return said
}

// A source that reports too low a UIDNEXT is read to its end, also after a broken connection.
func TestUIDNextTooLow(t *testing.T) {
	s := servertest.Start(t, servertest.MigrationWait(10*time.Millisecond))
	m := &mover{t, s, clientOf(t, s), nil}
	var broke atomic.Bool
	const messages = 600 // more than are requested at once
	addr := serve(t, func(c net.Conn) {
		answers(c, "* OK [CAPABILITY IMAP4rev1] hello", func(tag, command string) string {
			said := ""
			switch {
			case command == "CAPABILITY":
				said = "* CAPABILITY IMAP4rev1\r\n"
			case strings.HasPrefix(command, "LIST"):
				said = "* LIST () \"/\" INBOX\r\n"
			case strings.HasPrefix(command, "STATUS"):
				said = fmt.Sprintf("* STATUS INBOX (MESSAGES %d)\r\n", messages)
			case strings.HasPrefix(command, "EXAMINE"):
				said = fmt.Sprintf("* %d EXISTS\r\n* OK [UIDVALIDITY 1] x\r\n* OK [UIDNEXT 4] x\r\n", messages)
			case strings.HasPrefix(command, "UID SEARCH"):
				said = "* SEARCH"
				for i := 1; i <= messages; i++ {
					said += fmt.Sprintf(" %d", i)
				}
				said += "\r\n"
			case strings.Contains(command, "FETCH 501:") && !broke.Swap(true):
				_ = c.Close()
			case strings.Contains(command, "FETCH"):
				var low, high int
				of := strings.Fields(strings.TrimPrefix(command, "UID "))[1]
				if n, _ := fmt.Sscanf(of, "%d:%d", &low, &high); n == 0 {
					low, high = 1, messages
				}
				for i := low; i <= high; i++ {
					said += fetched(strings.Replace(command, of, fmt.Sprint(i), 1), messages, func(number int, text string) string {
						return fmt.Sprintf("* %d FETCH (UID %d BODY[] {%d}\r\n%s)\r\n", number, number, len(text), text)
					})
				}
			}
			return said + tag + " OK done\r\n"
		})
	})
	m.ends(m.box("ann", 0), dovecotSource(addr, "ann", "none"), "completed", "", messages, 0, 0)
}

// Of two folders with the same decoded name, only one can be requested: the report says so.
func TestFoldersOfOneName(t *testing.T) {
	s := servertest.Start(t, servertest.MigrationWait(10*time.Millisecond))
	m := &mover{t, s, clientOf(t, s), nil}
	addr := serve(t, func(c net.Conn) {
		answers(c, "* OK [CAPABILITY IMAP4rev1] hello", func(tag, command string) string {
			said := ""
			switch {
			case command == "CAPABILITY":
				said = "* CAPABILITY IMAP4rev1\r\n"
			case strings.HasPrefix(command, "LIST"):
				said = "* LIST () \"/\" INBOX\r\n* LIST () \"/\" inbox\r\n" +
					"* LIST () \"/\" \"Z&APw-rich\"\r\n* LIST () \"/\" \"Zürich\"\r\n" +
					"* LIST (\\Noselect) \"/\" Work\r\n* LIST () \"/\" Work\r\n"
			case strings.HasPrefix(command, "EXAMINE"):
				said = "* 0 EXISTS\r\n* OK [UIDVALIDITY 1] x\r\n* OK [UIDNEXT 1] x\r\n"
			}
			return said + tag + " OK done\r\n"
		})
	})
	d := m.ends(m.box("ann", 0), dovecotSource(addr, "ann", "none"), "completed", "", 0, 0, 0)
	if len(d.Folders) != 3 || len(d.Failures) != 1 || d.Failures[0].Folder != "Zürich" || d.Failures[0].UID != 0 {
		t.Errorf("%+v %+v", d.Folders, d.Failures)
	}
}

// A source may name the message only after its text: it is free to order its response items.
func TestUIDsAfterTexts(t *testing.T) {
	s := servertest.Start(t, servertest.MigrationWait(10*time.Millisecond))
	m := &mover{t, s, clientOf(t, s), nil}
	var validity atomic.Int32
	validity.Store(1)
	addr := serve(t, func(c net.Conn) {
		answers(c, "* OK [CAPABILITY IMAP4rev1] hello", func(tag, command string) string {
			said := ""
			switch {
			case command == "CAPABILITY":
				said = "* CAPABILITY IMAP4rev1\r\n"
			case strings.HasPrefix(command, "LIST"):
				said = "* LIST () \"/\" INBOX\r\n"
			case strings.HasPrefix(command, "STATUS"):
				said = "* STATUS INBOX (MESSAGES 3)\r\n"
			case strings.HasPrefix(command, "EXAMINE"):
				said = fmt.Sprintf("* 3 EXISTS\r\n* OK [UIDVALIDITY %d] x\r\n* OK [UIDNEXT 14] x\r\n", validity.Load())
			case strings.HasPrefix(command, "UID SEARCH"):
				said = "* SEARCH 11 12 13\r\n"
			case strings.Contains(command, "FETCH"):
				first, by := 0, strings.Fields(strings.TrimPrefix(command, "UID "))[1]
				if strings.HasPrefix(command, "UID") {
					first = 10
				}
				for n := 1; n <= 3; n++ {
					if by != fmt.Sprint(first+n) && by != fmt.Sprintf("%d:%d", first+1, first+3) {
						continue
					}
					text := fmt.Sprintf("Subject: %d\r\n\r\n", n)
					said += fmt.Sprintf("* %d FETCH (", n)
					if strings.Contains(command, "FLAGS") {
						said += fmt.Sprintf("FLAGS () INTERNALDATE \" 1-Jan-2001 00:00:00 +0000\" RFC822.SIZE %d ", len(text))
					}
					if strings.Contains(command, "HEADER") {
						said += fmt.Sprintf("BODY[HEADER.FIELDS (\"Message-ID\" \"Date\" \"From\" \"Subject\")] {%d}\r\n%s ", len(text), text)
					} else if strings.Contains(command, "BODY") {
						said += fmt.Sprintf("BODY[] {%d}\r\n%s ", len(text), text)
					}
					said += fmt.Sprintf("UID %d)\r\n", 10+n)
				}
			}
			return said + tag + " OK done\r\n"
		})
	})
	box := m.box("ann", 0)
	m.ends(box, dovecotSource(addr, "ann", "none"), "completed", "", 3, 0, 0)
	validity.Store(2)
	m.ends(box, dovecotSource(addr, "ann", "none"), "completed", "", 0, 3, 0)
}

// few serves a source with n messages. say may override a response; "" means the usual one.
func few(n int, say func(c net.Conn, tag, command string) string) func(c net.Conn) {
	return func(c net.Conn) {
		answers(c, "* OK [CAPABILITY IMAP4rev1] hello", func(tag, command string) string {
			if said := say(c, tag, command); said != "" {
				return said
			}
			said := ""
			switch {
			case command == "CAPABILITY":
				said = "* CAPABILITY IMAP4rev1\r\n"
			case strings.HasPrefix(command, "LIST"):
				said = "* LIST () \"/\" INBOX\r\n"
			case strings.HasPrefix(command, "STATUS"):
				said = fmt.Sprintf("* STATUS INBOX (MESSAGES %d)\r\n", n)
			case strings.HasPrefix(command, "EXAMINE"):
				said = fmt.Sprintf("* %d EXISTS\r\n* OK [UIDVALIDITY 1] x\r\n* OK [UIDNEXT %d] x\r\n", n, n+1)
			case strings.HasPrefix(command, "UID SEARCH"):
				said = "* SEARCH"
				for i := 1; i <= n; i++ {
					said += fmt.Sprintf(" %d", i)
				}
				said += "\r\n"
			case strings.Contains(command, "FETCH"):
				for _, i := range numbers(command, n) {
					said += commandAbout(command, i)
				}
			}
			return said + tag + " OK done\r\n"
		})
	}
}

// numbers returns the messages from 1 to n that a FETCH asks for.
func numbers(command string, n int) (list []int) {
	for of := range strings.SplitSeq(strings.Fields(strings.TrimPrefix(command, "UID "))[1], ",") {
		low, high, ranged := strings.Cut(of, ":")
		if !ranged {
			high = low
		}
		first, _ := strconv.Atoi(low)
		last, err := strconv.Atoi(high)
		if err != nil { // *
			last = n
		}
		for i := first; i <= min(last, n); i++ {
			list = append(list, i)
		}
	}
	return list
}

// commandAbout is the answer to a FETCH about one message.
func commandAbout(command string, i int) string {
	text := fmt.Sprintf("Subject: %d\r\n\r\n", i)
	said := fmt.Sprintf("* %d FETCH (UID %d FLAGS () INTERNALDATE \" 1-Jan-2001 00:00:00 +0000\" RFC822.SIZE %d", i, i, len(text))
	switch {
	case strings.Contains(command, "HEADER"):
		said += fmt.Sprintf(" BODY[HEADER.FIELDS (\"Message-ID\" \"Date\" \"From\" \"Subject\")] {%d}\r\n%s", len(text), text)
	case strings.Contains(command, "BODY"):
		said += fmt.Sprintf(" BODY[] {%d}\r\n%s", len(text), text)
	}
	return said + ")\r\n"
}

// A message that a source says nothing about counts as deleted only if a search no longer finds it.
// Otherwise it is reported as not copied.
func TestSaysNothingOfAMessage(t *testing.T) {
	s := servertest.Start(t, servertest.MigrationWait(10*time.Millisecond))
	m := &mover{t, s, clientOf(t, s), nil}
	for _, what := range []string{"FETCH", "BODY.PEEK[]"} {
		t.Run(what, func(t *testing.T) {
			var searched atomic.Int32
			addr := serve(t, few(6, func(_ net.Conn, tag, command string) string {
				switch {
				case strings.HasPrefix(command, "UID SEARCH") && searched.Add(1) > 1: // 5 was deleted meanwhile
					return "* SEARCH 1 2 3 4 6\r\n" + tag + " OK done\r\n"
				case !strings.Contains(command, what):
					return ""
				}
				said := ""
				for _, i := range numbers(command, 6) {
					if i != 3 && i != 5 {
						said += commandAbout(command, i)
					}
				}
				return said + tag + " OK done\r\n"
			}))
			m := m.with(t)
			d := m.ends(m.box("silent"+strings.ToLower(what[:4]), 0), dovecotSource(addr, "ann", "none"), "completed", "", 4, 0, 1)
			if len(d.Failures) != 1 || d.Failures[0].UID != 3 || d.Progress.MessagesDone != 6 {
				t.Errorf("%+v %+v", d.Progress, d.Failures)
			}
		})
	}
}

// A message that a source never gives prevents no other from being copied.
func TestOneMessageRefused(t *testing.T) {
	s := servertest.Start(t, servertest.MigrationWait(time.Millisecond))
	for what, refuse := range map[string]func(c net.Conn, tag string) string{
		"no":      func(_ net.Conn, tag string) string { return tag + " NO Can't be retrieved\r\n" },
		"trouble": func(_ net.Conn, tag string) string { return tag + " NO [SERVERBUG] Internal error\r\n" },
		"garbled": func(_ net.Conn, tag string) string { return "* 30 FETCH (FLAGS\r\n" + tag + " OK done\r\n" },
		"farewell": func(c net.Conn, _ string) string {
			_, _ = io.WriteString(c, "* BYE FETCH failed\r\n")
			_ = c.Close()
			return "\r\n"
		},
	} {
		t.Run(what, func(t *testing.T) {
			m := &mover{t, s, clientOf(t, s), nil}
			addr := serve(t, few(50, func(c net.Conn, tag, command string) string {
				if !strings.Contains(command, "BODY.PEEK[]") {
					return ""
				}
				said := ""
				for _, i := range numbers(command, 50) {
					if i == 30 {
						_, _ = io.WriteString(c, said)
						return refuse(c, tag)
					}
					said += commandAbout(command, i)
				}
				return said + tag + " OK done\r\n"
			}))
			d := m.ends(m.box("refused"+what, 0), dovecotSource(addr, "ann", "none"), "completed", "", 49, 0, 1)
			if len(d.Failures) != 1 || d.Failures[0].UID != 30 {
				t.Errorf("%+v", d.Failures)
			}
		})
	}
}

// A source that gives nothing at all fails, without a request for each of its messages.
func TestAllMessagesRefused(t *testing.T) {
	s := servertest.Start(t, servertest.MigrationWait(time.Millisecond))
	for what, words := range map[string]string{"NO Not for you": "Not for you", "NO [UNAVAILABLE] Later": "It was tried 21 times"} {
		m := &mover{t, s, clientOf(t, s), nil}
		addr := serve(t, few(1000, func(_ net.Conn, tag, command string) string {
			if strings.Contains(command, "BODY.PEEK[]") {
				return tag + " " + what + "\r\n"
			}
			return ""
		}))
		d := finished(t, m.c, m.start(m.box(fmt.Sprintf("all%d", len(what)), 0), dovecotSource(addr, "ann", "none")))
		if d.Status != "failed" || !strings.Contains(d.Detail, words) || d.Progress.Copied != 0 || d.Progress.Failed > 0 {
			t.Errorf("%s: it ended as %s %q %+v", what, d.Status, d.Detail, d.Progress)
		}
	}
}

// A source that gives nothing for a while costs no message, for every kind of response.
func TestBusyCostsNothing(t *testing.T) {
	s := servertest.Start(t, servertest.MigrationWait(time.Millisecond))
	for what, times := range map[string]int32{"NO Internal error": 40, "NO [UNAVAILABLE] Later": 75} {
		for _, n := range []int{1, 5} {
			m := &mover{t, s, clientOf(t, s), nil}
			var asked atomic.Int32
			addr := serve(t, few(n, func(_ net.Conn, tag, command string) string {
				if strings.Contains(command, "BODY.PEEK[]") && asked.Add(1) <= times {
					return tag + " " + what + "\r\n"
				}
				return ""
			}))
			m.ends(m.box(fmt.Sprintf("busy%d.%d", len(what), n), 0), dovecotSource(addr, "ann", "none"), "completed", "", int64(n), 0, 0)
		}
	}
}

// The only message of a folder is also skipped in the end.
func TestOnlyMessageRefused(t *testing.T) {
	s := servertest.Start(t, servertest.MigrationWait(time.Millisecond))
	for what, said := range map[string]string{"no": "NO Can't be retrieved", "trouble": "NO [SERVERBUG] Internal error", "garbled": "OK)\r\n* ("} {
		m := &mover{t, s, clientOf(t, s), nil}
		addr := serve(t, few(1, func(_ net.Conn, tag, command string) string {
			if strings.Contains(command, "BODY.PEEK[]") {
				return tag + " " + said + "\r\n"
			}
			return ""
		}))
		m.ends(m.box("only"+what, 0), dovecotSource(addr, "ann", "none"), "completed", "", 0, 0, 1)
	}
}

// Unreadable folders, as many as are copied at once, prevent no other from being copied.
func TestFoldersRefused(t *testing.T) {
	s := servertest.Start(t, servertest.MigrationWait(time.Millisecond))
	m := &mover{t, s, clientOf(t, s), nil}
	names := []string{"Bad 1", "Bad 2", "Bad 3", "Good"}
	var opened sync.Map // by connection
	addr := serve(t, few(2, func(c net.Conn, tag, command string) (said string) {
		name, _ := opened.Load(c)
		switch {
		case strings.HasPrefix(command, "LIST"):
			for _, name := range names {
				said += fmt.Sprintf("* LIST () \"/\" %q\r\n", name)
			}
			return said + tag + " OK done\r\n"
		case strings.HasPrefix(command, "STATUS"):
			return fmt.Sprintf("* STATUS %q (MESSAGES 2)\r\n%s OK done\r\n", strings.Split(command, `"`)[1], tag)
		case strings.HasPrefix(command, "EXAMINE"):
			opened.Store(c, strings.Trim(strings.TrimPrefix(command, "EXAMINE "), `"`))
		case strings.Contains(command, "BODY.PEEK[]") && name != "Good":
			return tag + " NO Can't be retrieved\r\n"
		}
		return ""
	}))
	m.ends(m.box("folders", 0), dovecotSource(addr, "ann", "none"), "failed", "Can't be retrieved", 2, 0, 0)
}

// A source whose responses can't be parsed fails soon and costs no message: once it is fixed, all
// of them are copied.
func TestNothingUnderstood(t *testing.T) {
	s := servertest.Start(t, servertest.MigrationWait(time.Millisecond))
	for name, what := range map[string]string{"about": "RFC822.SIZE", "texts": "BODY.PEEK[]"} {
		t.Run(name, func(t *testing.T) {
			m := &mover{t, s, clientOf(t, s), nil}
			var mended atomic.Bool
			var asked atomic.Int32
			addr := serve(t, few(100, func(_ net.Conn, tag, command string) string {
				if mended.Load() || !strings.Contains(command, what) || !strings.HasPrefix(command, "UID") {
					return ""
				}
				asked.Add(1)
				return "* 1 FETCH (FLAGS\r\n" + tag + " OK done\r\n"
			}))
			box := m.box("nothing"+name, 0)
			m.ends(box, dovecotSource(addr, "ann", "none"), "failed", "can't be understood. It was tried 3 times", 0, 0, 0)
			if n := asked.Load(); n > 60 {
				t.Errorf("it was asked %d times", n)
			}
			mended.Store(true)
			m.ends(box, dovecotSource(addr, "ann", "none"), "completed", "", 100, 0, 0)
		})
	}
}

// The other messages are copied, however many the source refuses, also if all that it gives are
// here already.
func TestManyMessagesRefused(t *testing.T) {
	s := servertest.Start(t, servertest.MigrationWait(time.Millisecond))
	m := &mover{t, s, clientOf(t, s), nil}
	const messages, bad, each = 630, 210, 3
	var refuses atomic.Bool
	var asked sync.Map // connections: only the first message is given, so that asking for another always succeeds
	addr := serve(t, few(messages, func(c net.Conn, tag, command string) string {
		if !strings.Contains(command, "BODY.PEEK[]") {
			return ""
		}
		list := numbers(command, messages)
		_, before := asked.LoadOrStore(c, true)
		said := ""
		for _, i := range list {
			switch {
			case i%each != 0 || refuses.Load() && !before && len(list) == 1:
				said += commandAbout(command, i)
			case refuses.Load():
				return said + tag + " NO Can't be retrieved\r\n"
			}
		}
		return said + tag + " OK done\r\n"
	}))
	box := m.box("many", 0)
	m.ends(box, dovecotSource(addr, "ann", "none"), "completed", "", messages-bad, 0, bad)
	refuses.Store(true)
	m.ends(box, dovecotSource(addr, "ann", "none"), "completed", "", 0, messages-bad, bad)
}

// Folders at which a source breaks off, more than end a try, don't prevent later folders from being
// copied. This holds for every behavior from try to try.
func TestFoldersBreak(t *testing.T) {
	s := servertest.Start(t, servertest.MigrationWait(time.Millisecond))
	m := &mover{t, s, clientOf(t, s), nil}
	addr := serve(t, few(2, func(c net.Conn, tag, command string) (said string) {
		switch {
		case strings.HasPrefix(command, "LIST"):
			for i := range 40 {
				said += fmt.Sprintf("* LIST () \"/\" \"Bad %02d\"\r\n", i)
			}
			return said + "* LIST () \"/\" Good\r\n" + tag + " OK done\r\n"
		case strings.HasPrefix(command, "STATUS"):
			return fmt.Sprintf("* STATUS %q (MESSAGES 2)\r\n%s OK done\r\n", strings.Trim(strings.TrimSuffix(strings.TrimPrefix(command, "STATUS "), " (MESSAGES)"), `"`), tag)
		case strings.HasPrefix(command, "EXAMINE") && strings.Contains(command, "Bad"):
			_ = c.Close()
			return "\r\n"
		}
		return ""
	}))
	m.ends(m.box("break", 0), dovecotSource(addr, "ann", "none"), "failed", "broke off", 2, 0, 0)
}

// Folders with many refused messages, more than are copied at once, take turns with the others.
func TestFoldersTakeTurns(t *testing.T) {
	s := servertest.Start(t, servertest.MigrationWait(time.Millisecond))
	m := &mover{t, s, clientOf(t, s), nil}
	names := []string{"Bad 1", "Bad 2", "Bad 3", "Bad 4", "Good"}
	var opened sync.Map // by connection
	var refused, early atomic.Int32
	addr := serve(t, few(60, func(c net.Conn, tag, command string) (said string) {
		name, _ := opened.Load(c)
		switch {
		case strings.HasPrefix(command, "LIST"):
			for _, name := range names {
				said += fmt.Sprintf("* LIST () \"/\" %q\r\n", name)
			}
			return said + tag + " OK done\r\n"
		case strings.HasPrefix(command, "STATUS"):
			return fmt.Sprintf("* STATUS %q (MESSAGES 60)\r\n%s OK done\r\n", strings.Split(command, `"`)[1], tag)
		case strings.HasPrefix(command, "EXAMINE"):
			name := strings.Trim(strings.TrimPrefix(command, "EXAMINE "), `"`)
			if opened.Store(c, name); name == "Good" {
				early.CompareAndSwap(0, refused.Load())
			}
		case strings.Contains(command, "BODY.PEEK[]") && name != "Good":
			for _, i := range numbers(command, 60) {
				if i%3 == 0 {
					refused.Add(1)
					return said + tag + " NO Can't be retrieved\r\n"
				}
				said += commandAbout(command, i)
			}
			return said + tag + " OK done\r\n"
		}
		return ""
	}))
	m.ends(m.box("turns", 0), dovecotSource(addr, "ann", "none"), "completed", "", 4*40+60, 0, 4*20)
	if n, all := early.Load(), refused.Load(); n > all/2 {
		t.Errorf("a folder had its turn after %d of %d refusals", n, all)
	}
}

// A folder whose sizes the source refuses to give is copied: sizes only serve progress.
func TestSizesRefused(t *testing.T) {
	s := servertest.Start(t, servertest.MigrationWait(time.Millisecond))
	m := &mover{t, s, clientOf(t, s), nil}
	for what, said := range map[string]string{
		"refused": "a NO Some of the requested messages can't be read", "trouble": "a NO [SERVERBUG] Internal error",
		"garbled": "* 1 FETCH (FLAGS\r\na OK done", "ended": "",
	} {
		t.Run(what, func(t *testing.T) {
			m := m.with(t)
			addr := serve(t, few(3, func(c net.Conn, tag, command string) string {
				if !strings.HasPrefix(command, "FETCH 1:*") {
					return ""
				}
				if said == "" {
					_ = c.Close()
				}
				return strings.Replace(said, "a ", tag+" ", 1) + "\r\n"
			}))
			m.ends(m.box("sizes"+what, 0), dovecotSource(addr, "ann", "none"), "completed", "", 3, 0, 0)
		})
	}
}

// If a source ends each connection after some messages, fewer than a batch, each connection copies
// that many. No message is blamed.
func TestConnectionsEndEarly(t *testing.T) {
	s := servertest.Start(t, servertest.MigrationWait(time.Millisecond))
	m := &mover{t, s, clientOf(t, s), nil}
	const messages, each = 60, 7
	for _, what := range []string{"within a text", "between texts"} {
		t.Run(what, func(t *testing.T) {
			m := m.with(t)
			addr := serve(t, few(messages, func(c net.Conn, tag, command string) string {
				if !strings.Contains(command, "BODY.PEEK[]") {
					return ""
				}
				list := numbers(command, messages)
				if len(list) <= each {
					return ""
				}
				said := ""
				for _, i := range list[:each] {
					said += commandAbout(command, i)
				}
				if what == "within a text" {
					said += strings.TrimSuffix(commandAbout(command, list[each]), "\r\n\r\n)\r\n")
				}
				_, _ = io.WriteString(c, said)
				_ = c.Close()
				return "\r\n"
			}))
			m.ends(m.box(what[:6], 0), dovecotSource(addr, "ann", "none"), "completed", "", messages, 0, 0)
		})
	}
}

// The only readable message is copied, however many the source refuses.
func TestOneMessageGiven(t *testing.T) {
	s := servertest.Start(t, servertest.MigrationWait(time.Millisecond))
	m := &mover{t, s, clientOf(t, s), nil}
	const messages = 100
	addr := serve(t, few(messages, func(_ net.Conn, tag, command string) string {
		if strings.Contains(command, "BODY.PEEK[]") {
			list := numbers(command, messages)
			if list[0] == 1 && len(list) > 1 {
				return commandAbout(command, 1) + tag + " NO Can't be retrieved\r\n"
			} else if list[0] > 1 {
				return tag + " NO Can't be retrieved\r\n"
			}
		}
		return ""
	}))
	m.ends(m.box("one", 0), dovecotSource(addr, "ann", "none"), "completed", "", 1, 0, messages-1)
}

// A folder whose name can't be decoded, stored or requested prevents no other from being copied,
// and is reported.
func TestNamesThatCannotBe(t *testing.T) {
	dbtest.EachURL(t, func(t *testing.T, url string) {
		s := servertest.Start(t, servertest.Database(url), servertest.MigrationWait(time.Millisecond))
		m := &mover{t, s, clientOf(t, s), nil}
		bad := []string{"R&D", "R&ED-", "R&2AA-", "R&AOQ-&APY-", "R&=-", "Z\xfcrich", "x\x01y", "x&AAA-y", strings.Repeat("x", 1001)}
		good := []string{"INBOX", "R&-D", "&APw-", "Z\xc3\xbcrich", "&2Dzf8w-", `quote\"d`, "&AAE-"}
		addr := serve(t, few(2, func(_ net.Conn, tag, command string) (said string) {
			switch {
			case strings.HasPrefix(command, "LIST"):
				for i, name := range append(bad, good...) {
					if i > 0 { // else it is an atom
						name = `"` + name + `"`
					}
					said += "* LIST (\\HasNoChildren) \"/\" " + name + "\r\n"
				}
				return said + tag + " OK done\r\n"
			case strings.HasPrefix(command, "STATUS"):
				return tag + " NO No\r\n"
			}
			return ""
		}))
		d := m.ends(m.box("ann", 0), dovecotSource(addr, "ann", "none"), "completed", "", int64(2*len(good)), 0, 0)
		if len(d.Failures) != len(bad) {
			t.Errorf("%d told: %+v", len(d.Failures), d.Failures)
		}
		for _, f := range d.Failures {
			if f.UID != 0 || len(f.Folder) == 0 || len(f.Folder) > 300 {
				t.Errorf("%+v", f)
			}
		}
	})
}

// The job asks again for a folder that a source refuses to open once.
func TestFolderRefusedOnce(t *testing.T) {
	s := servertest.Start(t, servertest.MigrationWait(time.Millisecond))
	m := &mover{t, s, clientOf(t, s), nil}
	var asked atomic.Int32
	addr := serve(t, few(2, func(_ net.Conn, tag, command string) string {
		if strings.HasPrefix(command, "EXAMINE") && asked.Add(1) == 1 {
			return tag + " NO System error\r\n"
		}
		return ""
	}))
	m.ends(m.box("once", 0), dovecotSource(addr, "ann", "none"), "completed", "", 2, 0, 0)
}

// If the source's UIDVALIDITY differs on each connection, earlier messages count once.
func TestRenumberedMeanwhile(t *testing.T) {
	servertest.Each(t, func(t *testing.T, s *servertest.Server) {
		m := &mover{t, s, clientOf(t, s), nil}
		const messages = 60
		var validity atomic.Int32
		addr := serve(t, few(messages, func(c net.Conn, tag, command string) string {
			switch {
			case strings.HasPrefix(command, "EXAMINE"):
				return fmt.Sprintf("* %d EXISTS\r\n* OK [UIDVALIDITY %d] x\r\n* OK [UIDNEXT %d] x\r\n%s OK done\r\n", messages, validity.Add(1), messages+1, tag)
			case strings.Contains(command, "BODY.PEEK[]"):
				list := numbers(command, messages)
				if len(list) <= 20 {
					return ""
				}
				for _, i := range list[:20] {
					_, _ = io.WriteString(c, commandAbout(command, i))
				}
				_ = c.Close()
				return "\r\n"
			}
			return ""
		}))
		from := dovecotSource(addr, "ann", "none")
		d := m.ends(s.Dev.Mailboxes[0].ID.String(), from, "completed", "", messages, 0, 0)
		if d.Progress.MessagesDone != messages {
			t.Errorf("%+v", d.Progress)
		}
		d = m.ends(s.Dev.Mailboxes[0].ID.String(), from, "completed", "", 0, messages, 0)
		if d.Progress.MessagesDone != messages {
			t.Errorf("%+v", d.Progress)
		}
	})
}

// A migration fails if the source's UIDVALIDITY differs on each connection and it breaks off after
// the messages that are here.
func TestRenumberedForEver(t *testing.T) {
	s := servertest.Start(t, servertest.MigrationWait(time.Millisecond))
	m := &mover{t, s, clientOf(t, s), nil}
	const messages, far = 5, 900_000 // beyond the first search
	var validity atomic.Int32
	addr := serve(t, few(messages, func(c net.Conn, tag, command string) string {
		switch {
		case strings.HasPrefix(command, "EXAMINE"):
			return fmt.Sprintf("* %d EXISTS\r\n* OK [UIDVALIDITY %d] x\r\n* OK [UIDNEXT %d] x\r\n%s OK done\r\n", messages+1, validity.Add(1), far+1, tag)
		case strings.HasPrefix(command, "UID SEARCH") && !strings.HasPrefix(command, "UID SEARCH UID 1:"):
			return fmt.Sprintf("* SEARCH %d\r\n%s OK done\r\n", far, tag)
		case strings.HasPrefix(command, "UID FETCH "+strconv.Itoa(far)):
			_ = c.Close()
			return "\r\n"
		}
		return ""
	}))
	m.ends(m.box("ever", 0), dovecotSource(addr, "ann", "none"), "failed", "broke off", messages, 0, 0)
}

// Refused messages need no new connection: the job goes on with the same one.
func TestRefusalsKeepTheConnection(t *testing.T) {
	s := servertest.Start(t, servertest.MigrationWait(time.Millisecond))
	m := &mover{t, s, clientOf(t, s), nil}
	const messages, each = 60, 3
	var connections atomic.Int32
	answer := few(messages, func(_ net.Conn, tag, command string) (said string) {
		if !strings.Contains(command, "BODY.PEEK[]") {
			return ""
		}
		for _, i := range numbers(command, messages) {
			if i%each == 0 {
				return said + tag + " NO Can't be retrieved\r\n"
			}
			said += commandAbout(command, i)
		}
		return said + tag + " OK done\r\n"
	})
	addr := serve(t, func(c net.Conn) {
		connections.Add(1)
		answer(c)
	})
	m.ends(m.box("keeps", 0), dovecotSource(addr, "ann", "none"), "completed", "", messages-messages/each, 0, messages/each)
	if n := connections.Load(); n > 1 {
		t.Errorf("it took %d connections", n)
	}
}
