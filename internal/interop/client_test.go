// SPDX-License-Identifier: Apache-2.0

package interop

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/emersion/go-imap/v2"
	"github.com/emersion/go-imap/v2/imapclient"

	"github.com/mailstead/mailstead/internal/server/servertest"
)

// msmtp submits as a desktop's sendmail does, over both ways.
func TestMsmtp(t *testing.T) {
	s := servertest.Start(t)
	alice := s.Dev.Mailboxes[0]
	for door, starttls := range map[string]string{"submission": "on", "submissions": "off"} {
		t.Run(door, func(t *testing.T) {
			p := newProgram(t)
			config := func(password string) string {
				return p.write("msmtprc", fmt.Sprintf(
					"account default\nhost localhost\nport %d\ntls on\ntls_starttls %s\ntls_trust_file %s\nauth on\nuser %s\npassword %s\nfrom %s\n",
					s.Dev.Ports[door], starttls, s.Dev.CACert, alice.Address, password, alice.Address))
			}
			subject := "msmtp, STARTTLS " + starttls
			// Bcc is for the envelope alone, and no line stands for the end.
			text := message("Alice <"+alice.Address+">", "bob@demo.test", subject, "first\n.\n..\nlast")
			text = strings.Replace(text, "\n\n", "\nBcc: alice+copy@demo.test\n\n", 1)
			p.must(text, "msmtp", "-C", config(alice.Password), "--read-recipients")
			got := arrived(t, s, 1, "INBOX", subject)
			contains(t, got, "\r\n\r\nfirst\r\n.\r\n..\r\nlast\r\n")
			if copied := arrived(t, s, 0, "INBOX", subject); strings.Contains(copied+got, "Bcc") {
				t.Errorf("the Bcc shows:\n%s", copied)
			}
			out, err := p.run(text, "msmtp", "-C", config("Wrong-1-Password"), "--read-recipients")
			if err == nil || !strings.Contains(out, "535 5.7.8") {
				t.Errorf("with a wrong password: %v\n%s", err, out)
			}
		})
	}
}

// curl reads, searches and files over IMAP, and sends over SMTP.
func TestCurl(t *testing.T) {
	s := servertest.Start(t)
	alice, bob := s.Dev.Mailboxes[0], s.Dev.Mailboxes[1]
	p := newProgram(t)
	curl := func(args ...string) string {
		return p.must("", "curl", append([]string{"-sS", "--cacert", s.Dev.CACert}, args...)...)
	}
	asBob := bob.Address + ":" + bob.Password
	imaps := fmt.Sprintf("imaps://localhost:%d", s.Dev.Ports["imaps"])
	starttls := fmt.Sprintf("imap://localhost:%d", s.Dev.Ports["imap"])

	mail := p.write("mail.eml", strings.ReplaceAll(message(alice.Address, bob.Address, "sent by curl", "Grüße"), "\n", "\r\n"))
	for _, url := range []string{
		fmt.Sprintf("smtp://localhost:%d", s.Dev.Ports["submission"]), fmt.Sprintf("smtps://localhost:%d", s.Dev.Ports["submissions"]),
	} {
		curl("--ssl-reqd", url, "--user", alice.Address+":"+alice.Password, "--mail-from", alice.Address,
			"--mail-rcpt", bob.Address, "--upload-file", mail)
	}
	servertest.Eventually(t, func() string {
		if out := curl(imaps+"/INBOX?SUBJECT%20curl", "--user", asBob); !strings.Contains(out, "* SEARCH 1 2\r\n") {
			return out
		}
		return ""
	})
	contains(t, curl(imaps, "--user", asBob), "* LIST", "INBOX")
	contains(t, curl("--ssl-reqd", starttls+"/INBOX;UID=1", "--user", asBob), "Subject: sent by curl", "Gr=C3=BC=C3=9Fe")
	contains(t, curl(imaps+"/INBOX;MAILINDEX=2;SECTION=HEADER.FIELDS%20(SUBJECT)", "--user", asBob), "Subject: sent by curl")

	filed := p.write("filed.eml", strings.ReplaceAll(message(bob.Address, alice.Address, "filed by curl", "a draft"), "\n", "\r\n"))
	curl(imaps+"/Drafts", "--user", asBob, "--upload-file", filed)
	contains(t, curl(imaps+"/Drafts;MAILINDEX=1", "--user", asBob), "Subject: filed by curl", "a draft")
	contains(t, curl(imaps+"/INBOX", "--user", asBob, "-X", `STORE 1 +FLAGS (\Flagged)`), `\Flagged`)
	contains(t, curl(imaps+"/INBOX?FLAGGED", "--user", asBob), "* SEARCH 1\r\n")

	if out, err := p.run("", "curl", "-sS", "--cacert", s.Dev.CACert, imaps+"/INBOX", "--user", bob.Address+":Wrong-1-Password"); err == nil {
		t.Errorf("a wrong password was taken: %s", out)
	}
	if out, err := p.run("", "curl", "-sS", starttls+"/INBOX", "--user", asBob); err == nil {
		t.Errorf("a log-in in clear was taken: %s", out)
	}
}

// mutt sends in a batch and works through a mailbox by pressing keys.
func TestMutt(t *testing.T) {
	s := servertest.Start(t)
	alice, bob := s.Dev.Mailboxes[0], s.Dev.Mailboxes[1]
	p := newProgram(t, "USER=bob", "TERM=vt100")
	p.write("attachment.txt", "what was attached\n")
	rc := p.write("muttrc", fmt.Sprintf(`set ssl_ca_certificates_file = "%s"
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
	p.must("Hallo Alice, schöne Grüße.\n", "mutt", "-F", rc, "-s", "Über mutt", "-a", "attachment.txt", "--", alice.Address)
	contains(t, arrived(t, s, 0, "INBOX", "Über mutt"), "Bob", "multipart/mixed", "attachment.txt", "what was attached")
	arrived(t, s, 1, "Sent", "Über mutt")

	for _, subject := range []string{"mutt one", "mutt two", "mutt three"} {
		file(t, s, 1, "INBOX", message(alice.Address, bob.Address, subject, "this is "+subject))
	}
	// Print the first, save the second to Archive, delete the third, leave.
	// Without a terminal mutt does nothing of this; script is one.
	keys := "<first-entry><print-message><next-entry><save-message>+Archive<enter><last-entry><delete-message><sync-mailbox><quit>"
	p.must("", "script", "--quiet", "--return", "--command", fmt.Sprintf("mutt -F %s -e 'push %s'", rc, keys), filepath.Join(p.home, "screen"))
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

// mbsync brings a mailbox to a Maildir, and takes back what changed there.
func TestMbsync(t *testing.T) {
	s := servertest.Start(t)
	alice, bob := s.Dev.Mailboxes[0], s.Dev.Mailboxes[1]
	p := newProgram(t)
	rc := p.write("mbsyncrc", fmt.Sprintf(`IMAPAccount bob
Host localhost
Port %d
SSLType IMAPS
SystemCertificates no
CertificateFile %s
User %s
Pass "%s"

IMAPStore far
Account bob

MaildirStore near
Path %s/mail/
Inbox %s/mail/INBOX
SubFolders Verbatim

Channel all
Far :far:
Near :near:
Patterns *
Create Both
Remove Both
Expunge Both
SyncState *
`, s.Dev.Ports["imaps"], s.Dev.CACert, bob.Address, bob.Password, p.home, p.home))
	if err := os.Mkdir(filepath.Join(p.home, "mail"), 0o700); err != nil {
		t.Fatal(err)
	}
	sync := func() { p.must("", "mbsync", "-c", rc, "-a") }
	find := func(folder, subject string) string {
		paths, _ := filepath.Glob(filepath.Join(p.home, "mail", folder, "*", "*"))
		for _, path := range paths {
			if text, err := os.ReadFile(path); err == nil && strings.Contains(string(text), "Subject: "+subject) {
				return path
			}
		}
		return ""
	}
	flags := func(folder, subject string) string {
		_, info, _ := strings.Cut(filepath.Base(find(folder, subject)), ":2,")
		return info
	}

	for n := range 30 {
		file(t, s, 1, "INBOX", message(alice.Address, bob.Address, fmt.Sprintf("mail %02d.", n), strings.Repeat("text\n", n*40)))
	}
	file(t, s, 1, "Archive", message(alice.Address, bob.Address, "old.", "old"), imap.FlagSeen, imap.FlagAnswered)
	sync()
	for n := range 30 {
		if find("INBOX", fmt.Sprintf("mail %02d.", n)) == "" {
			t.Errorf("mail %02d did not come", n)
		}
	}
	if got := flags("Archive", "old."); got != "RS" {
		t.Errorf("the flags of old are %q", got)
	}

	// What changes in the Maildir: a flag, a deletion, a new message, a folder.
	path := find("INBOX", "mail 03.")
	moved := filepath.Join(filepath.Dir(filepath.Dir(path)), "cur", filepath.Base(path)+":2,FS")
	if strings.Contains(path, ":2,") {
		moved = path + "FS"
	}
	if err := os.Rename(path, moved); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(find("INBOX", "mail 04.")); err != nil {
		t.Fatal(err)
	}
	p.write("mail/INBOX/new/made.here", message(bob.Address, alice.Address, "made here.", "offline"))
	for _, sub := range []string{"cur", "new", "tmp"} {
		if err := os.MkdirAll(filepath.Join(p.home, "mail", "Travel", sub), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	p.write("mail/Travel/new/ticket.here", message(bob.Address, alice.Address, "ticket.", "seat 12"))
	// And at the same time on the server.
	c := login(t, s, 1, nil)
	found := search(t, c, "INBOX", "mail 05.")
	if err := c.Store(imap.UIDSetNum(found...), &imap.StoreFlags{Op: imap.StoreFlagsAdd, Flags: []imap.Flag{imap.FlagAnswered, imap.FlagSeen}}, nil).Close(); err != nil {
		t.Fatal(err)
	}
	file(t, s, 1, "INBOX", message(alice.Address, bob.Address, "came meanwhile.", "text"))
	sync()

	arrived(t, s, 1, "INBOX", "made here.")
	contains(t, arrived(t, s, 1, "Travel", "ticket."), "seat 12")
	absent(t, s, 1, "mail 04.")
	if got := flagsOf(t, c, "mail 03."); !strings.Contains(got, `\Flagged`) || !strings.Contains(got, `\Seen`) {
		t.Errorf("mail 03 has the flags %s on the server", got)
	}
	if got := flags("INBOX", "mail 05."); got != "RS" {
		t.Errorf("mail 05 has the flags %q in the Maildir", got)
	}
	if find("INBOX", "came meanwhile.") == "" {
		t.Error("what came meanwhile is not in the Maildir")
	}
	before, _ := filepath.Glob(filepath.Join(p.home, "mail", "*", "*", "*"))
	sync()
	if after, _ := filepath.Glob(filepath.Join(p.home, "mail", "*", "*", "*")); len(after) != len(before) {
		t.Errorf("with nothing to do, %d files became %d", len(before), len(after))
	}
}

func flagsOf(t *testing.T, c *imapclient.Client, subject string) string {
	t.Helper()
	found := search(t, c, "INBOX", subject)
	all, err := c.Fetch(imap.UIDSetNum(found...), &imap.FetchOptions{Flags: true}).Collect()
	if err != nil || len(all) != 1 {
		t.Fatalf("%q: %d messages, %v", subject, len(all), err)
	}
	return fmt.Sprint(all[0].Flags)
}
