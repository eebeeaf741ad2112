// SPDX-License-Identifier: Apache-2.0

package interop

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/emersion/go-imap/v2"

	"github.com/mailstead/mailstead/internal/server/servertest"
)

// oddFolders are names that a program must synchronize both ways.
var oddFolders = []string{"Projekte/Grüße, Küsse", "日本語", "🙂 fun", "a.b c", "100%", "(brackets) {1}", "&ampersand"}

// bothWays lets a program synchronize a mailbox with all kinds of folders and flags to a Maildir,
// changes both, and synchronizes again.
func bothWays(t *testing.T, s *servertest.Server, near *maildir, sync func()) {
	t.Helper()
	alice, bob := s.Dev.Mailboxes[0], s.Dev.Mailboxes[1]
	c := login(t, s, 1, nil)
	for _, name := range oddFolders {
		if err := c.Create(name, nil).Wait(); err != nil {
			t.Fatal(err)
		}
		file(t, s, 1, name, message(alice.Address, bob.Address, "in "+name, "odd"), imap.FlagFlagged)
	}
	subjects := []string{"stays", "read here", "read there", "deleted here", "deleted there", "moved here", "moved there", "unread here", "in conflict"}
	for i, subject := range subjects {
		file(t, s, 1, "INBOX", message(alice.Address, bob.Address, subject, strings.Repeat("Grüße, text\n", i*300)))
	}
	store(t, c, "INBOX", "unread here", imap.StoreFlagsAdd, imap.FlagSeen, imap.FlagAnswered)
	store(t, c, "INBOX", "stays", imap.StoreFlagsAdd, "$Work", imap.FlagDraft)
	sync()
	for _, name := range oddFolders {
		if got := near.flags(name, "in "+name); got != "F" {
			t.Errorf("%q has the flags %q", name, got)
		}
	}
	if got := near.flags("INBOX", "unread here"); got != "RS" {
		t.Errorf("the flags are %q", got)
	}
	before := near.all()
	modseq := highest(t, s)
	sync()
	if after := near.all(); !slices.Equal(before, after) {
		t.Errorf("with nothing to do, these files became those:\n%q\n%q", before, after)
	}
	if now := highest(t, s); !maps.Equal(now, modseq) {
		t.Errorf("with nothing to do, the mailbox went from %v to %v", modseq, now)
	}

	near.flag("INBOX", "read here", "FS")
	near.flag("INBOX", "unread here", "R")
	near.flag("INBOX", "in conflict", "F")
	near.remove("INBOX", "deleted here")
	near.move("INBOX", "moved here", "Archive")
	near.put("INBOX", "made", message(bob.Address, alice.Address, "made here", "offline ☂"))
	near.put("Reise/Züge", "ticket", message(bob.Address, alice.Address, "ticket", "seat 12"))
	store(t, c, "INBOX", "read there", imap.StoreFlagsAdd, imap.FlagSeen)
	store(t, c, "INBOX", "in conflict", imap.StoreFlagsAdd, imap.FlagAnswered)
	store(t, c, "INBOX", "deleted there", imap.StoreFlagsAdd, imap.FlagDeleted)
	if err := c.Expunge().Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Move(imap.UIDSetNum(search(t, c, "INBOX", "moved there")...), "日本語").Wait(); err != nil {
		t.Fatal(err)
	}
	if err := c.Create("Made/There", nil).Wait(); err != nil {
		t.Fatal(err)
	}
	file(t, s, 1, "Made/There", message(alice.Address, bob.Address, "came meanwhile", "new"))
	sync()
	sync() // some programs need a second run after moves

	there := mails(t, s)
	want := []string{`Archive: moved here ()`, `INBOX: in conflict (\Answered \Flagged)`, `INBOX: made here ()`, `INBOX: read here (\Flagged \Seen)`,
		`INBOX: read there (\Seen)`, `INBOX: stays ($Work \Draft)`, `INBOX: unread here (\Answered)`, `Made/There: came meanwhile ()`,
		`Reise/Züge: ticket ()`, `日本語: moved there ()`}
	for _, name := range oddFolders {
		want = append(want, fmt.Sprintf(`%s: in %s (\Flagged)`, name, name))
	}
	slices.Sort(want)
	if !slices.Equal(there, want) {
		t.Errorf("the mailbox has\n%q, not\n%q", there, want)
	}
	for _, w := range want {
		folder, rest, _ := strings.Cut(w, ": ")
		at := strings.LastIndex(rest, " (")
		subject, flags := rest[:at], rest[at:]
		messages := ""
		for _, f := range []struct{ flag, flagLetter string }{{`\Draft`, "D"}, {`\Flagged`, "F"}, {`\Answered`, "R"}, {`\Seen`, "S"}} {
			if strings.Contains(flags, f.flag) {
				messages += f.flagLetter
			}
		}
		if got := near.flags(folder, subject); got != messages {
			t.Errorf("%s: %s has the flags %q in the Maildir", folder, subject, got)
		}
	}
	if n := len(near.all()); n != len(want) {
		t.Errorf("the Maildir has %d messages: %q", n, near.all())
	}
}
