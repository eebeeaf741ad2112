// SPDX-License-Identifier: Apache-2.0

package interop

import (
	"fmt"
	"strings"
	"testing"

	"github.com/mailstead/mailstead/internal/server/servertest"
)

// msmtp submits as a desktop's sendmail does, over both ways.
func TestMsmtp(t *testing.T) {
	s := servertest.Start(t)
	alice := s.Dev.Mailboxes[0]
	for listener, starttls := range map[string]string{"submission": "on", "submissions": "off"} {
		t.Run(listener, func(t *testing.T) {
			p := newProgram(t)
			config := func(password string) string {
				return p.write("msmtprc", fmt.Sprintf(
					"account default\nhost localhost\nport %d\ntls on\ntls_starttls %s\ntls_trust_file %s\nauth on\nuser %s\npassword %s\nfrom %s\n",
					s.Dev.Ports[listener], starttls, s.Dev.CACert, alice.Address, password, alice.Address))
			}
			subject := "msmtp, STARTTLS " + starttls
			// Bcc must only be in the envelope, and a line with a dot must not end the message.
			text := message("Alice <"+alice.Address+">", "bob@demo.test", subject, "first\n.\n..\nlast")
			text = strings.Replace(text, "\n\n", "\nBcc: alice+copy@demo.test\n\n", 1)
			p.must(text, "msmtp", "-C", config(alice.Password), "--read-recipients")
			got := arrived(t, s, 1, "INBOX", subject)
			contains(t, got, "\r\n\r\nfirst\r\n.\r\n..\r\nlast\r\n")
			if copied := arrived(t, s, 0, "INBOX", subject); strings.Contains(copied+got, "\nBcc") {
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
