// SPDX-License-Identifier: Apache-2.0

package interop

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/emersion/go-imap/v2"
	"github.com/emersion/go-imap/v2/imapclient"
	"github.com/emersion/go-smtp"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/db/dbtest"
	mime "github.com/mailstead/mailstead/internal/message"
	"github.com/mailstead/mailstead/internal/server/servertest"
)

// Programs restricted to SCRAM-SHA-256: mbsync has it from Cyrus SASL, mutt and msmtp from GNU
// SASL.
func TestScramPrograms(t *testing.T) {
	s := servertest.Start(t, servertest.SCRAM("on"))
	alice, bob := s.Dev.Mailboxes[0], s.Dev.Mailboxes[1]
	box, err := s.Mailboxes.ByID(t.Context(), bob.ID)
	if err != nil {
		t.Fatal(err)
	}
	_, app, err := s.Mailboxes.CreateAppPassword(t.Context(), box.Account, bob.ID, "Laptop", []string{"imap", "smtp"})
	if err != nil {
		t.Fatal(err)
	}
	file(t, s, 1, "INBOX", message(alice.Address, bob.Address, "for those who prove", "Grüße"))
	for name, password := range map[string]string{"own password": bob.Password, "app password": app} {
		t.Run("mbsync, "+name, func(t *testing.T) {
			p := newProgram(t)
			near := newMaildir(t, p.home+"/mail", mime.EncodeUTF7)
			with := func(password string) string {
				return p.write("mbsyncrc", strings.Replace(fmt.Sprintf(mbsyncrc, p.home, s.Dev.Ports["imaps"], "IMAPS", s.Dev.CACert, bob.Address, password),
					"Account bob\n", "Account bob\nAuthMechs SCRAM-SHA-256\n", 1))
			}
			p.must("", "mbsync", "-c", with(password), "-a")
			near.flags("INBOX", "for those who prove")
			if out, err := p.run("", "mbsync", "-c", with("Wrong-1-Password"), "-a"); err == nil {
				t.Errorf("mbsync with a wrong password:\n%s", out)
			}
		})
		t.Run("msmtp, "+name, func(t *testing.T) {
			p := newProgram(t)
			with := func(password string) string {
				return p.write("msmtprc", fmt.Sprintf("account default\nhost localhost\nport %d\ntls on\ntls_starttls off\ntls_trust_file %s\n"+
					"auth scram-sha-256\nuser %s\npassword %s\nfrom %s\n", s.Dev.Ports["submissions"], s.Dev.CACert, bob.Address, password, bob.Address))
			}
			subject := "msmtp with its " + name
			p.must(message(bob.Address, alice.Address, subject, "Grüße"), "msmtp", "-C", with(password), "--read-recipients")
			arrived(t, s, 0, "INBOX", subject)
			if out, err := p.run(message(bob.Address, alice.Address, subject, ""), "msmtp", "-C", with("Wrong-1-Password"), "--read-recipients"); err == nil || !strings.Contains(out, "535 5.7.8") {
				t.Errorf("msmtp with a wrong password: %v\n%s", err, out)
			}
		})
	}
	t.Run("mutt", func(t *testing.T) {
		p := newProgram(t, "USER=bob", "TERM=vt100")
		rc := muttrc(s, p)
		text, err := os.ReadFile(rc)
		if err != nil {
			t.Fatal(err)
		}
		p.write("muttrc", string(text)+"set smtp_authenticators = \"scram-sha-256\"\nset imap_authenticators = \"scram-sha-256\"\n")
		p.must("Hallo.\n", "mutt", "-F", rc, "-s", "proved by mutt", "--", alice.Address)
		arrived(t, s, 0, "INBOX", "proved by mutt")
		arrived(t, s, 1, "Sent", "proved by mutt")
		p.keys(rc, "<first-entry><print-message><quit>")
		printed, err := os.ReadFile(filepath.Join(p.home, "printed"))
		if err != nil {
			t.Fatal(err)
		}
		contains(t, string(printed), "for those who prove")
	})
}

var scramKept = db.SQL(`SELECT COUNT(*) FROM mailbox WHERE scram <> ''`)

// The operator turns on SCRAM-SHA-256 in two steps, learning and offering, and turns it off again;
// no data stays.
func TestScramLife(t *testing.T) {
	dbtest.EachURL(t, func(t *testing.T, url string) {
		dir := t.TempDir()
		start := func(how string) *servertest.Server {
			return servertest.Start(t, servertest.Database(url), servertest.Data(dir), servertest.SCRAM(how))
		}
		kept := func(s *servertest.Server) (n int) {
			t.Helper()
			if err := s.DB.One(t.Context(), scramKept.With(), &n); err != nil {
				t.Fatal(err)
			}
			return n
		}
		proves := func(s *servertest.Server, password string) error {
			c, err := imapclient.DialTLS(s.Addr("imaps"), &imapclient.Options{TLSConfig: s.TLS()})
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close() //nolint:errcheck // the session is over
			offered := slices.ContainsFunc(c.Caps().AuthMechanisms(), func(m string) bool { return m == "SCRAM-SHA-256" })
			if !offered {
				return errors.New("not offered")
			}
			if err := c.Authenticate(&servertest.SCRAMClient{User: s.Dev.Mailboxes[0].Address, Password: password}); err != nil {
				return err
			}
			_, err = c.Select("INBOX", &imap.SelectOptions{ReadOnly: true}).Wait()
			return err
		}
		submits := func(s *servertest.Server, password string) error {
			c, err := smtp.DialTLS(s.Addr("submissions"), s.TLS())
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close() //nolint:errcheck // the session is over
			if !c.SupportsAuth("SCRAM-SHA-256") {
				return errors.New("not offered")
			}
			return c.Auth(&servertest.SCRAMClient{User: s.Dev.Mailboxes[0].Address, Password: password})
		}
		for _, how := range []string{"off", "learn", "on", "off"} {
			s := start(how)
			password := s.Dev.Mailboxes[0].Password
			login(t, s, 0, nil)
			if n := kept(s); how != "off" && n != 2 { // in dev mode both sign in at the start
				t.Errorf("%s: keeps %d verifiers", how, n)
			}
			imap, smtp := proves(s, password), submits(s, password)
			if ok := how == "on"; ok != (imap == nil) || ok != (smtp == nil) {
				t.Errorf("%s: IMAP %v, submission %v", how, imap, smtp)
			}
			if how == "on" {
				imap, smtp := proves(s, password+"x"), submits(s, password+"x")
				if imap == nil || smtp == nil {
					t.Error("signed in with a wrong password")
				}
			}
			if how == "off" {
				servertest.Eventually(t, func() string {
					if n := kept(s); n > 0 {
						return fmt.Sprintf("%d verifiers are still there", n)
					}
					return ""
				})
			}
			if err := s.Stop(); err != nil {
				t.Fatal(err)
			}
		}
	})
}
