// SPDX-License-Identifier: Apache-2.0

package server_test

import (
	"bytes"
	"crypto/tls"
	"encoding/base64"
	"fmt"
	"net/smtp"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/emersion/go-imap/v2"
	"github.com/emersion/go-imap/v2/imapclient"
	"go.uber.org/goleak"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/db/dbtest"
	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/notify"
	"github.com/mailstead/mailstead/internal/server"
	"github.com/mailstead/mailstead/internal/server/servertest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// open signs in to a mailbox of the service.
func open(t *testing.T, s *servertest.Server, box int) *imapclient.Client {
	t.Helper()
	c, err := imapclient.DialTLS(s.Addr("imaps"), &imapclient.Options{TLSConfig: s.TLS()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	if err := c.Login(s.Dev.Mailboxes[box].Address, s.Dev.Mailboxes[box].Password).Wait(); err != nil {
		t.Fatal(err)
	}
	return c
}

// arrived waits until a mailbox has n messages, and returns the bytes of the last one.
func arrived(t *testing.T, s *servertest.Server, box int, n uint32) string {
	t.Helper()
	c := open(t, s, box)
	sub := s.Hub.Subscribe(notify.Key{Kind: notify.Folder, ID: inbox(t, s, box)})
	defer sub.Close()
	for {
		selected, err := c.Select("INBOX", nil).Wait()
		if err != nil {
			t.Fatal(err)
		}
		if selected.NumMessages >= n {
			break
		}
		select {
		case <-sub.C:
		case <-t.Context().Done():
			t.Fatal("it did not arrive")
		}
	}
	section := &imap.FetchItemBodySection{Peek: true}
	got, err := c.Fetch(imap.SeqSetNum(n), &imap.FetchOptions{BodySection: []*imap.FetchItemBodySection{section}}).Collect()
	if err != nil || len(got) != 1 {
		t.Fatalf("%d messages, %v", len(got), err)
	}
	return string(got[0].FindBodySection(section))
}

func inbox(t *testing.T, s *servertest.Server, box int) int64 {
	t.Helper()
	f, err := s.Folders.Status(t.Context(), s.Dev.Mailboxes[box].ID, "INBOX")
	if err != nil {
		t.Fatal(err)
	}
	return int64(f.ID)
}

type sent struct {
	ID         string `json:"id"`
	MessageID  string `json:"message_id"`
	Status     string `json:"status"`
	Recipients []struct {
		Email    string `json:"email"`
		Status   string `json:"status"`
		Timeline []struct {
			Outcome string `json:"outcome"`
		} `json:"timeline"`
	} `json:"recipients"`
}

// The main path: from the API through the queue into a mailbox, and out of it over IMAP.
func TestSendToMailbox(t *testing.T) {
	servertest.Each(t, func(t *testing.T, s *servertest.Server) {
		a := s.API("POST", "/outbound/send", map[string]any{
			"from_email": "alice@demo.test", "from_name": "Alice", "to": []string{"Bob <bob@demo.test>"}, "bcc": []string{"alice@demo.test"},
			"subject": "Grüße", "text": "Hello", "html": "<p>Hello</p>", "metadata": map[string]any{"order": 12345678901234567},
			"headers":     map[string]string{"X-Order": "42"},
			"attachments": []map[string]string{{"filename": "ä.txt", "content": base64.StdEncoding.EncodeToString([]byte("attached"))}},
		})
		if a.Status != 202 {
			t.Fatalf("%d %s", a.Status, a.Body)
		}
		if !bytes.Contains(a.Body, []byte("12345678901234567")) {
			t.Errorf("the metadata is not what was given: %s", a.Body)
		}
		var m sent
		a.Decode(t, &m)
		mail := arrived(t, s, 1, 1)
		for _, want := range []string{"DKIM-Signature: ", "a=rsa-sha256", "a=ed25519-sha256", "Message-ID: " + m.MessageID, "X-Order: 42", "multipart/mixed", "Delivered-To: bob@demo.test"} {
			if !strings.Contains(mail, want) {
				t.Errorf("%q is not in\n%s", want, mail)
			}
		}
		if strings.Contains(strings.ToLower(mail), "\nbcc:") {
			t.Errorf("Bcc shows in\n%s", mail)
		}
		arrived(t, s, 0, 1)
		delivered(t, s, m.ID)
	})
}

// delivered waits for the message's events and checks its timeline.
func delivered(t *testing.T, s *servertest.Server, id string) {
	t.Helper()
	accounts, err := s.Accounts.ByEmail(t.Context(), "you@demo.test")
	if err != nil {
		t.Fatal(err)
	}
	sub := s.Hub.Subscribe(notify.Key{Kind: notify.EventStream, ID: int64(accounts.ID)})
	defer sub.Close()
	for {
		var m sent
		s.API("GET", "/outbound/messages/"+id, nil).Decode(t, &m)
		events := s.API("GET", "/events?type=delivery_status&message="+id, nil)
		if m.Status == "delivered" && bytes.Count(events.Body, []byte(`"type":"delivery_status"`)) == len(m.Recipients) {
			for _, r := range m.Recipients {
				if len(r.Timeline) != 1 || r.Timeline[0].Outcome != "delivered" {
					t.Errorf("timeline of %s: %+v", r.Email, r.Timeline)
				}
			}
			return
		}
		select {
		case <-sub.C:
		case <-t.Context().Done():
			t.Fatalf("not delivered: %+v %s", m, events.Body)
		}
	}
}

// Submitted mail takes the same path, without its Bcc field.
func TestSubmission(t *testing.T) {
	servertest.Each(t, func(t *testing.T, s *servertest.Server) {
		c, err := smtp.Dial(s.Addr("submission"))
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close() //nolint:errcheck // it quit
		bob := s.Dev.Mailboxes[1]
		for _, step := range []func() error{
			func() error { return c.StartTLS(s.TLS()) },
			func() error { return c.Auth(smtp.PlainAuth("", bob.Address, bob.Password, "127.0.0.1")) },
			func() error { return c.Mail("bob@demo.test") },
			func() error { return c.Rcpt("alice@demo.test") },
		} {
			if err := step(); err != nil {
				t.Fatal(err)
			}
		}
		w, err := c.Data()
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprint(w, "From: bob@demo.test\nTo: alice@demo.test\nBcc: eve@demo.test\nSubject: Hi\n\nHo\n") //nolint:errcheck // Close tells
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		if err := c.Quit(); err != nil {
			t.Error(err)
		}
		mail := arrived(t, s, 0, 1)
		for _, want := range []string{"Message-ID: ", "Date: ", "Return-Path: <bob@demo.test>", "Received: "} {
			if !strings.Contains(mail, want) {
				t.Errorf("%q is not in\n%s", want, mail)
			}
		}
		if strings.Contains(mail, "eve@") {
			t.Errorf("Bcc shows in\n%s", mail)
		}
	})
}

// An account that lost a domain to another one can't submit mail from it, and its queued mail from
// the domain is not sent.
func TestLostDomainSendsNothing(t *testing.T) {
	servertest.Each(t, func(t *testing.T, s *servertest.Server) {
		var m sent
		s.API("POST", "/outbound/send", map[string]any{
			"from_email": "alice@demo.test", "to": []string{"bob@demo.test"}, "subject": "x", "text": "x"}).Decode(t, &m)
		delivered(t, s, m.ID)
		id, err := db.ParseID(m.ID)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.Outbox.Prepare(t.Context(), id); err != nil {
			t.Fatal(err)
		}
		lose := db.SQL(`UPDATE domain SET owned = FALSE, status = 'failed' WHERE id = $1`)
		dbtest.Exec(t, s.DB, lose.With(s.Dev.Domain.ID))
		s.Domains.Invalidate(s.Dev.Domain.ID)
		if _, err := s.Outbox.Prepare(t.Context(), id); !fault.Is(err, fault.Denied) {
			t.Errorf("what waits: %v", err)
		}
		c, err := smtp.Dial(s.Addr("submission"))
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close() //nolint:errcheck // it says nothing more
		bob := s.Dev.Mailboxes[1]
		if err := c.StartTLS(s.TLS()); err != nil {
			t.Fatal(err)
		}
		if err := c.Auth(smtp.PlainAuth("", bob.Address, bob.Password, "127.0.0.1")); err != nil {
			t.Fatal("it still reads its mail:", err)
		}
		for _, from := range []string{bob.Address, ""} {
			if err := c.Mail(from); err == nil || !strings.Contains(err.Error(), "5.7.1") {
				t.Errorf("MAIL FROM:<%s>: %v", from, err)
			}
		}
	})
}

// A second start on the same folder keeps all data, including passwords and the key.
func TestDevStartsAgain(t *testing.T) {
	dir := t.TempDir()
	config := func(c *server.Config) { c.Data = dir }
	first := servertest.Start(t, config)
	if a := first.API("POST", "/outbound/send", map[string]any{
		"from_email": "alice@demo.test", "to": []string{"bob@demo.test"}, "subject": "x", "text": "x"}); a.Status != 202 {
		t.Fatalf("%d %s", a.Status, a.Body)
	}
	arrived(t, first, 1, 1)
	was := *first.Dev
	if err := first.Stop(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(dir, "dev.json")); err != nil {
		t.Error(err)
	}
	second := servertest.Start(t, config)
	if second.Dev.APIKey != was.APIKey || second.Dev.Mailboxes[0] != was.Mailboxes[0] || second.Dev.Domain != was.Domain {
		t.Errorf("was %+v, now %+v", was, second.Dev)
	}
	arrived(t, second, 1, 1)
}

// Two processes can't use one folder.
func TestDataFolderIsLocked(t *testing.T) {
	dir := t.TempDir()
	servertest.Start(t, func(c *server.Config) { c.Data = dir })
	c := server.DevConfig(dir)
	c.PortBase = server.AnyPort
	if s, err := server.Start(t.Context(), c, servertest.Log(t)); err == nil || !strings.Contains(err.Error(), "another process") {
		t.Errorf("got %v", err)
		if s != nil {
			_ = s.Shutdown()
		}
	}
}

// The certificate is valid for localhost, with the certificate authority in dev.json.
func TestTLS(t *testing.T) {
	s := servertest.Start(t)
	for _, listener := range []string{"https", "imaps", "submissions"} {
		c, err := tls.Dial("tcp", s.Addr(listener), s.TLS())
		if err != nil {
			t.Errorf("%s: %v", listener, err)
			continue
		}
		_ = c.Close()
	}
}
