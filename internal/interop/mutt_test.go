// SPDX-License-Identifier: Apache-2.0

package interop

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/emersion/go-imap/v2"

	"github.com/mailstead/mailstead/internal/needtest"
	"github.com/mailstead/mailstead/internal/server/servertest"
)

// mutt sends in batch mode and processes a mailbox with key presses.
func TestMutt(t *testing.T) {
	s := servertest.Start(t)
	alice, bob := s.Dev.Mailboxes[0], s.Dev.Mailboxes[1]
	p := newProgram(t, "USER=bob", "TERM=vt100")
	p.write("attachment.txt", "what was attached\n")
	rc := muttrc(s, p)
	p.must("Hallo Alice, schöne Grüße.\n", "mutt", "-F", rc, "-s", "Über mutt", "-a", "attachment.txt", "--", alice.Address)
	contains(t, arrived(t, s, 0, "INBOX", "Über mutt"), "Bob", "multipart/mixed", "attachment.txt", "what was attached")
	arrived(t, s, 1, "Sent", "Über mutt")

	for _, subject := range []string{"mutt one", "mutt two", "mutt three"} {
		file(t, s, 1, "INBOX", message(alice.Address, bob.Address, subject, "this is "+subject))
	}
	// Print the first, save the second to Archive, delete the third, leave.
	p.keys(rc, "<first-entry><print-message><next-entry><save-message>+Archive<enter><last-entry><delete-message><sync-mailbox><quit>")
	printed, err := os.ReadFile(filepath.Join(p.home, "printed"))
	if err != nil {
		t.Fatal(err)
	}
	contains(t, string(printed), "this is mutt one")
	arrived(t, s, 1, "Archive", "mutt two")
	arrived(t, s, 1, "INBOX", "mutt one")
	absent(t, s, 1, "mutt two")
	absent(t, s, 1, "mutt three")
}

// muttrc returns a configuration for bob's mailbox.
func muttrc(s *servertest.Server, p *program) string {
	bob := s.Dev.Mailboxes[1]
	return p.write("muttrc", fmt.Sprintf(`set ssl_ca_certificates_file = "%s"
set ssl_force_tls = yes
set from = "%s"
set realname = "Bob Müller"
set use_envelope_from = yes
set smtp_url = "smtp://%s@localhost:%d/"
set smtp_pass = "%s"
set smtp_authenticators = "plain:login"
set imap_user = "%s"
set imap_pass = "%s"
set folder = "imaps://localhost:%d/"
set spoolfile = "+INBOX"
set record = "+Sent"
set mail_check = 1
set quit = yes
set delete = yes
set move = no
set sort = mailbox-order
set wait_key = no
set print = yes
set save_name = no
set confirmappend = no
set confirmcreate = no
set print_command = "cat >> %s/printed"
set print_decode = yes
`, s.Dev.CACert, bob.Address, strings.ReplaceAll(bob.Address, "@", "%40"), s.Dev.Ports["submission"], bob.Password,
		bob.Address, bob.Password, s.Dev.Ports["imaps"], p.home))
}

// keys runs mutt with key presses; it needs a terminal, which script provides.
func (p *program) keys(rc, keys string) {
	p.t.Helper()
	needtest.Program(p.t, "mutt")
	p.must("", "script", "--quiet", "--return", "--command", fmt.Sprintf("mutt -F %s -e 'push \"%s\"'", rc, keys), filepath.Join(p.home, "screen"))
}

// mutt reopens a mailbox with cached headers: QRESYNC reports the changes, over a compressed
// connection.
func TestMuttAgain(t *testing.T) {
	s := servertest.Start(t)
	alice, bob := s.Dev.Mailboxes[0], s.Dev.Mailboxes[1]
	p := newProgram(t, "USER=bob", "TERM=vt100")
	rc := muttrc(s, p)
	text, err := os.ReadFile(rc)
	if err != nil {
		t.Fatal(err)
	}
	p.write("muttrc", string(text)+fmt.Sprintf("set mark_old = no\nset imap_qresync = yes\nset imap_condstore = yes\nset imap_deflate = yes\nset header_cache = \"%s/headers\"\n", p.home))
	put := func(subject, text string, flags ...imap.Flag) {
		file(t, s, 1, "INBOX", message(alice.Address, bob.Address, subject, text), flags...)
	}
	put("first", "hay")
	put("second", "a needle, für dich")
	put("third", "hay")
	put("fourth", "a needle", imap.FlagSeen)
	p.keys(rc, "<quit>")

	c := login(t, s, 1, nil)
	store(t, c, "INBOX", "first", imap.StoreFlagsAdd, imap.FlagFlagged)
	store(t, c, "INBOX", "third", imap.StoreFlagsAdd, imap.FlagDeleted)
	if err := c.Expunge().Close(); err != nil {
		t.Fatal(err)
	}
	put("fifth", "a needle, later")
	// Copy the search results to a new folder; mark the flagged one as read and move it; reply to
	// the fourth.
	p.keys(rc, "<limit>=b needle<enter><tag-pattern>~A<enter><tag-prefix><copy-message>+Found/There<enter><untag-pattern>~A<enter>"+
		"<limit>~F<enter><clear-flag>N<save-message>+Archive<enter><sync-mailbox>"+
		"<limit>=s fourth<enter><first-entry><set-flag>r<sync-mailbox><quit>")
	want := []string{`Archive: first (\Flagged \Seen)`, `Found/There: fifth ()`, `Found/There: fourth (\Seen)`, `Found/There: second ()`,
		`INBOX: fifth ()`, `INBOX: fourth (\Answered \Seen)`, `INBOX: second ()`}
	if got := mails(t, s); !slices.Equal(got, want) {
		t.Errorf("the mailbox has\n%q, not\n%q", got, want)
	}
}
