// SPDX-License-Identifier: Apache-2.0

package migration_test

import (
	"bufio"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/mailstead/mailstead/client"
	"github.com/mailstead/mailstead/internal/folder"
	"github.com/mailstead/mailstead/internal/server/servertest"
)

// mover has a service with short delays, and a source.
type mover struct {
	*testing.T
	s   *servertest.Server
	c   *client.Client
	src *dovecot
}

func newMover(t *testing.T, namespace string) *mover {
	s := servertest.Start(t, servertest.MigrationWait(10*time.Millisecond))
	return &mover{t, s, clientOf(t, s), startDovecot(t, namespace)}
}

// box creates a mailbox.
func (m *mover) box(name string, mb int) (id string) {
	m.Helper()
	b, err := m.c.CreateMailbox(m.Context(), client.NewMailbox{DomainID: m.s.Dev.Domain.ID.String(), LocalPart: name, Password: dovecotPassword, QuotaMB: mb})
	if err != nil {
		m.Fatal(err)
	}
	return b.ID
}

func (m *mover) start(box string, from client.NewMigrationSource) string {
	m.Helper()
	g, err := m.c.CreateMigration(m.Context(), client.NewMigration{MailboxID: box, Source: from})
	if err != nil {
		m.Fatal(err)
	}
	return g.ID
}

// ends runs a migration until it ends, and checks the result.
func (m *mover) ends(box string, from client.NewMigrationSource, status, words string, copied, skipped, failed int64) *client.MigrationDetail {
	m.Helper()
	d := finished(m.T, m.c, m.start(box, from))
	if d.Status != status || !strings.Contains(d.Detail, words) || d.Progress.Copied != copied || d.Progress.Skipped != skipped || d.Progress.Failed != failed {
		m.Fatalf("it ended as %s %q %+v %+v", d.Status, d.Detail, d.Progress, d.Failures)
	}
	return d
}

// same compares a user's mail at the source with a local mailbox.
func (m *mover) same(user, box string, d *client.MigrationDetail) (messages int) {
	m.Helper()
	targets := map[string]string{}
	for _, f := range d.Folders {
		targets[f.Name] = f.Target
	}
	return identical(m, m.src.login(user), signIn(m, m.s.Addr("imaps"), box+"@demo.test", dovecotPassword), targets)
}

func TestTrouble(t *testing.T) {
	m := newMover(t, "separator = /")
	folders := map[string]string{"INBOX": "INBOX", "Work": "Work", "Zürich": "Zürich", "empty": "empty"}
	seed(t, m.src.login("ann"), folders, 150)
	ann := func(addr, tls string) client.NewMigrationSource { return dovecotSource(addr, "ann", tls) }

	t.Run("the line is cut", func(t *testing.T) {
		m := &mover{t, m.s, m.c, m.src}
		p := startProxy(t, m.src.imap, 1<<60, somewhere(10_000, 300_000))
		box := m.box("cut", 0)
		d := m.ends(box, ann(p.addr, "implicit"), "completed", "", 150, 0, 0)
		if n := m.same("ann", "cut", d); n != 150 || p.cuts < 3 {
			t.Errorf("%d messages, %d cuts", n, p.cuts)
		}
	})
	t.Run("the source breaks at one message", func(t *testing.T) { m.with(t).poisoned() })
	t.Run("wrong password", func(t *testing.T) {
		m := &mover{t, m.s, m.c, m.src}
		from := ann(m.src.imap, "implicit")
		from.Password = "Wr0ng-Password"
		d := m.ends(m.box("wrong", 0), from, "failed", "refuses the user name and the password", 0, 0, 0)
		if strings.Contains(d.Detail, from.Password) {
			t.Error("the password is told")
		}
	})
	t.Run("certificate", func(t *testing.T) {
		m := &mover{t, m.s, m.c, m.src}
		box := m.box("cert", 0)
		for _, from := range []client.NewMigrationSource{ann(m.src.imap, "implicit"), ann(m.src.plain, "starttls")} {
			from.InsecureSkipVerify = false
			m.ends(box, from, "failed", "insecure_skip_verify accepts it", 0, 0, 0)
		}
		m.ends(box, ann(m.src.plain, "starttls"), "completed", "", 150, 0, 0)
		m.ends(box, ann(m.src.plain, "none"), "completed", "", 0, 150, 0)
		m.ends(box, ann(m.src.plain, "implicit"), "failed", "does not speak TLS from the start", 0, 0, 0)
	})
	t.Run("cancelled", func(t *testing.T) { m.with(t).cancelled(ann) })
	t.Run("chosen folders", func(t *testing.T) {
		m := m.with(t)
		from := ann(m.src.imap, "implicit")
		from.Folders = []string{"Work", "nowhere"}
		d := m.ends(m.box("chosen", 0), from, "completed", "", 50, 0, 0)
		if len(d.Folders) != 1 || len(d.Failures) != 1 || d.Failures[0].Folder != "nowhere" || d.Failures[0].UID != 0 {
			t.Errorf("%+v %+v", d.Folders, d.Failures)
		}
	})
	t.Run("no room", func(t *testing.T) {
		m := m.with(t)
		seed(t, m.src.login("big"), folders, 300)
		box := m.box("full", 1)
		d := finished(t, m.c, m.start(box, dovecotSource(m.src.imap, "big", "implicit")))
		if d.Status != "failed" || !strings.Contains(d.Detail, "mailbox is full") || d.Progress.Copied == 0 || d.Progress.Copied > 250 {
			t.Fatalf("%s %q %+v", d.Status, d.Detail, d.Progress)
		}
		more := 100
		if _, err := m.c.UpdateMailbox(t.Context(), box, client.MailboxChange{QuotaMB: &more}); err != nil {
			t.Fatal(err)
		}
		d = m.ends(box, dovecotSource(m.src.imap, "big", "implicit"), "completed", "", 300-d.Progress.Copied, d.Progress.Copied, 0)
		m.same("big", "full", d)
	})
	t.Run("a full folder", func(t *testing.T) {
		m := m.with(t)
		seed(t, m.src.login("wide"), folders, 120)
		m.s.Folders.MaxMessages = 30
		defer func() { m.s.Folders.MaxMessages = folder.DefaultMaxMessages }()
		d := finished(t, m.c, m.start(m.box("narrow", 0), dovecotSource(m.src.imap, "wide", "implicit")))
		if d.Status != "completed" || len(d.Failures) == 0 {
			t.Fatalf("%s %q %+v", d.Status, d.Detail, d.Failures)
		}
		full := 0
		for _, f := range d.Folders {
			if f.Copied > 30 || f.Messages <= 30 && f.Status != "done" || f.Messages > 30 && (f.Copied != 30 || f.Status != "failed") {
				t.Errorf("%+v", f)
			}
			if f.Status == "failed" {
				full++
			}
		}
		if full == 0 {
			t.Errorf("no folder was too small: %+v", d.Folders)
		}
	})
	t.Run("new UIDVALIDITY, and a message that is too large", func(t *testing.T) { m.with(t).renumbered() })
	t.Run("busy", func(t *testing.T) {
		m := m.with(t)
		var calls atomic.Int32
		fake := serve(t, func(c net.Conn) {
			if calls.Add(1) > 3 {
				relayTo(c, m.src.plain)
				return
			}
			answers(c, "* OK hello", func(tag, _ string) string { return tag + " NO [UNAVAILABLE] Too many of you\r\n" })
		})
		m.ends(m.box("busy", 0), ann(fake, "none"), "completed", "", 150, 0, 0)
	})
}

func (m *mover) with(t *testing.T) *mover { return &mover{t, m.s, m.c, m.src} }

// A migration is cancelled while it copies: nothing is copied after that, and one event reports its
// end.
func (m *mover) cancelled(ann func(addr, tls string) client.NewMigrationSource) {
	m.Helper()
	p := startProxy(m.T, m.src.imap, 400_000, nil)
	box := m.box("cancelled", 0)
	id := m.start(box, ann(p.addr, "implicit"))
	<-p.held
	g, err := m.c.CancelMigration(m.Context(), id)
	if err != nil || g.Status != "cancelled" {
		m.Fatal(g, err)
	}
	p.allow(1 << 60)
	m.ends(box, ann(m.src.imap, "implicit"), "completed", "", 150-g.Progress.Copied, g.Progress.Copied, 0)
	d, err := m.c.GetMigration(m.Context(), id)
	if err != nil || d.Progress.Copied != g.Progress.Copied || d.Status != "cancelled" {
		m.Errorf("it went on: %+v, %v", d, err)
	}
	if told := m.told(id); len(told) != 1 || told[0].Status != "cancelled" || told[0].Copied != g.Progress.Copied {
		m.Errorf("told: %+v", told)
	}
}

// told returns the events about a migration's end.
func (m *mover) told(id string) (told []client.MigrationData) {
	m.Helper()
	for n := 1; n > 0; {
		var err error
		if n, err = m.s.Events.AssignPositions(m.Context()); err != nil {
			m.Fatal(err)
		}
	}
	for e, err := range m.c.Events(m.Context(), client.EventFilter{Types: []string{"migration_complete"}}) {
		if err != nil {
			m.Fatal(err)
		}
		var data client.MigrationData
		if err := e.Decode(&data); err != nil {
			m.Fatal(err)
		}
		if data.ID == id {
			told = append(told, data)
		}
	}
	return told
}

// If the source breaks off at one message, all others are copied, even in the only folder over the
// only connection.
func (m *mover) poisoned() {
	m.Helper()
	const poison = "X-Poison: yes"
	there := m.src.login("ivy")
	fill(m, there, "INBOX", 0, 20)
	text := "Subject: bad\r\n" + poison + "\r\n\r\nHello.\r\n"
	cmd := there.Append("INBOX", int64(len(text)), nil)
	if _, err := io.WriteString(cmd, text); err != nil {
		m.Fatal(err)
	}
	if err := cmd.Close(); err != nil {
		m.Fatal(err)
	}
	if _, err := cmd.Wait(); err != nil {
		m.Fatal(err)
	}
	fill(m, there, "INBOX", 20, 20)
	var died atomic.Int32
	fake := serve(m.T, func(c net.Conn) {
		up, err := net.Dial("tcp", m.src.plain)
		if err != nil {
			return
		}
		defer up.Close() //nolint:errcheck // it goes
		go func() {
			_, _ = io.Copy(up, c)
			_ = up.Close()
		}()
		for lines := bufio.NewReader(up); ; {
			line, err := lines.ReadString('\n')
			if strings.HasPrefix(line, poison) {
				died.Add(1)
				return
			}
			if _, werr := io.WriteString(c, line); err != nil || werr != nil {
				return
			}
		}
	})
	d := m.ends(m.box("poisoned", 0), dovecotSource(fake, "ivy", "none"), "completed", "", 40, 0, 1)
	if len(d.Failures) != 1 || d.Failures[0].UID != 21 || !strings.Contains(d.Failures[0].Detail, "broke off") || died.Load() < 8 {
		m.Errorf("%+v after %d breaks", d.Failures, died.Load())
	}
}

// A recreated folder with the same messages gives no duplicates.
func (m *mover) renumbered() {
	m.Helper()
	there := m.src.login("eve")
	create := func(messages int) {
		m.Helper()
		if err := there.Create("Old", nil).Wait(); err != nil {
			m.Fatal(err)
		}
		fill(m, there, "Old", 0, messages)
	}
	create(40)
	box := m.box("eve", 1000)
	from := dovecotSource(m.src.imap, "eve", "implicit")
	m.ends(box, from, "completed", "", 40, 0, 0)
	if err := there.Delete("Old").Wait(); err != nil {
		m.Fatal(err)
	}
	create(45)
	cmd := there.Append("Old", 51<<20, nil)
	line := []byte(strings.Repeat("x", 1022) + "\r\n")
	for range 51 << 10 {
		if _, err := cmd.Write(line); err != nil {
			m.Fatal(err)
		}
	}
	if err := cmd.Close(); err != nil {
		m.Fatal(err)
	}
	if _, err := cmd.Wait(); err != nil {
		m.Fatal(err)
	}
	d := m.ends(box, from, "completed", "", 5, 40, 1)
	if len(d.Failures) != 1 || d.Failures[0].UID != 46 || !strings.Contains(d.Failures[0].Detail, "larger than 50 MB") {
		m.Errorf("%+v", d.Failures)
	}
	m.ends(box, from, "completed", "", 0, 45, 1)
}

// The personal namespace's prefix is removed, and levels use the local separator.
func TestPrefix(t *testing.T) {
	m := newMover(t, "separator = .\n  prefix = INBOX.")
	there := m.src.login("ann")
	for _, name := range []string{"INBOX.Work", "INBOX.Work.2019", "INBOX.Sent Items", "INBOX.INBOX", "INBOX.Deleted Messages", "INBOX.Deleted Messages.x"} {
		if err := there.Create(name, nil).Wait(); err != nil {
			t.Fatal(err)
		}
		fill(t, there, name, 0, 3)
	}
	d := m.ends(m.box("ann", 0), dovecotSource(m.src.imap, "ann", "implicit"), "completed", "", 18, 0, 0)
	want := map[string]string{"INBOX": "INBOX", "INBOX.Work": "Work", "INBOX.Work.2019": "Work/2019", "INBOX.Sent Items": "Sent",
		"INBOX.INBOX": "INBOX (2)", "INBOX.Deleted Messages": "Trash", "INBOX.Deleted Messages.x": "Trash/x"}
	for _, f := range d.Folders {
		if want[f.Name] != f.Target {
			t.Errorf("%q became %q, not %q", f.Name, f.Target, want[f.Name])
		}
	}
	m.same("ann", "ann", d)
}

// serve answers connections like a source, with arbitrary data.
func serve(t *testing.T, answer func(c net.Conn)) (addr string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close() //nolint:errcheck // it goes
				answer(c)
			}()
		}
	}()
	return l.Addr().String()
}

// answers sends a greeting and responds to each command.
func answers(c net.Conn, greeting string, answer func(tag, command string) string) {
	_, _ = io.WriteString(c, greeting+"\r\n")
	for lines := bufio.NewScanner(c); lines.Scan(); {
		tag, command, _ := strings.Cut(lines.Text(), " ")
		if _, err := io.WriteString(c, answer(tag, command)); err != nil {
			return
		}
	}
}

func relayTo(c net.Conn, addr string) {
	up, err := net.Dial("tcp", addr)
	if err != nil {
		return
	}
	defer up.Close() //nolint:errcheck // it goes
	go func() {
		_, _ = io.Copy(up, c)
		_ = up.Close()
	}()
	_, _ = io.Copy(c, up)
}

// A migration from a source that sends false data fails with a clear reason before it has received
// much.
func TestLies(t *testing.T) {
	s := servertest.Start(t, servertest.MigrationWait(10*time.Millisecond))
	m := &mover{t, s, clientOf(t, s), nil}
	box := m.box("ann", 0)
	endless := func(begin, part string) func(c net.Conn, sent *atomic.Int64) {
		return func(c net.Conn, sent *atomic.Int64) {
			answers(c, "* OK [CAPABILITY IMAP4rev1] hello", func(tag, command string) string {
				switch {
				case command == "CAPABILITY":
					return "* CAPABILITY IMAP4rev1\r\n" + tag + " OK done\r\n"
				case !strings.HasPrefix(command, "LIST"):
					return tag + " OK done\r\n"
				}
				_, _ = io.WriteString(c, begin)
				for text := strings.Repeat(part, 1+(64<<10)/len(part)); ; {
					n, err := io.WriteString(c, text)
					if sent.Add(int64(n)); err != nil {
						return ""
					}
				}
			})
		}
	}
	kinds := map[string]func(c net.Conn, sent *atomic.Int64){
		"an endless line":       endless("* LIST () \"/\" ", "x"),
		"an endless literal":    endless("* LIST () \"/\" {99999999999}\r\n", "x"),
		"endless folders":       endless("", "* LIST () \"/\" a\r\n"),
		"an endless depth":      endless("* LIST ", "("),
		"endless capabilities":  endless("* CAPABILITY", " X"),
		"endless notes":         endless("", "* OK still here\r\n"),
		"endless continuations": endless("", "+ go on\r\n"),
	}
	for seed := range uint64(5) {
		kinds[fmt.Sprintf("random %d", seed)] = func(c net.Conn, sent *atomic.Int64) {
			answers(c, "* OK hello", func(tag, _ string) string {
				r := rand.New(rand.NewPCG(seed, 1)) //nolint:gosec // the same each time
				text := make([]byte, 200)
				for i := range text {
					text[i] = byte(r.Uint32())
				}
				sent.Add(200)
				return string(text) + "\r\n" + tag + " OK\r\n"
			})
		}
	}
	for name, lie := range kinds {
		t.Run(name, func(t *testing.T) {
			m := m.with(t)
			var sent atomic.Int64
			addr := serve(t, func(c net.Conn) { lie(c, &sent) })
			d := finished(t, m.c, m.start(box, dovecotSource(addr, "ann", "none")))
			if d.Status != "failed" || d.Detail == "" || d.Progress.Copied != 0 {
				t.Errorf("%s %q", d.Status, d.Detail)
			}
			if n := sent.Load(); n > 64<<20 {
				t.Errorf("%d bytes were taken", n)
			}
			if sent.Load() == 0 {
				t.Error("it was not asked")
			}
		})
	}
}
