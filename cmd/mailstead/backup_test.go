// SPDX-License-Identifier: Apache-2.0

package main_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/emersion/go-imap/v2"
	"github.com/emersion/go-imap/v2/imapclient"

	"github.com/mailstead/mailstead/client"
	"github.com/mailstead/mailstead/internal/db/dbtest"
	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/server"
	"github.com/mailstead/mailstead/internal/server/servertest"
)

// signIn signs in to bob's mailbox.
func signIn(t *testing.T, s *servertest.Server) *imapclient.Client {
	t.Helper()
	c, err := imapclient.DialTLS(s.Addr("imaps"), &imapclient.Options{TLSConfig: s.TLS()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	if err := c.Login(s.Dev.Mailboxes[1].Address, s.Dev.Mailboxes[1].Password).Wait(); err != nil {
		t.Fatal(err)
	}
	return c
}

// file appends a message of the given size, and returns its line in lettersOf.
func file(c *imapclient.Client, name, subject string, size int, flags ...imap.Flag) (string, error) {
	text := []byte("From: x@demo.test\r\nSubject: " + subject + "\r\n\r\n")
	for len(text) < size {
		text = append(text, fmt.Sprintf("%016x%016x\r\n", rand.Uint64(), rand.Uint64())...)
	}
	cmd := c.Append(name, int64(len(text)), &imap.AppendOptions{Flags: flags, Time: time.Unix(1_700_000_000, 0)})
	_, wrong := cmd.Write(text)
	err := errors.Join(wrong, cmd.Close())
	if err == nil {
		_, err = cmd.Wait()
	}
	return fmt.Sprintf("%s %v %d %x", name, flags, 1_700_000_000, sha256.Sum256(text)), err
}

// mailsOf returns all of bob's messages, and the UIDVALIDITY of each folder.
func mailsOf(t *testing.T, s *servertest.Server) (messages []string, validity map[string]uint32) {
	t.Helper()
	c := signIn(t, s)
	folders, err := c.List("", "*", nil).Collect()
	if err != nil {
		t.Fatal(err)
	}
	validity = map[string]uint32{}
	for _, f := range folders {
		selected, err := c.Select(f.Mailbox, &imap.SelectOptions{ReadOnly: true}).Wait()
		if err != nil {
			t.Fatal(err)
		}
		validity[f.Mailbox] = selected.UIDValidity
		if selected.NumMessages == 0 {
			continue
		}
		whole := &imap.FetchItemBodySection{Peek: true}
		list, err := c.Fetch(imap.SeqSet{{Start: 1}}, &imap.FetchOptions{Flags: true, InternalDate: true, BodySection: []*imap.FetchItemBodySection{whole}}).Collect()
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range list {
			flags := slices.DeleteFunc(m.Flags, func(f imap.Flag) bool { return f == `\Recent` })
			messages = append(messages, fmt.Sprintf("%s %v %d %x", f.Mailbox, flags, m.InternalDate.Unix(), sha256.Sum256(m.FindBodySection(whole))))
		}
	}
	return messages, validity
}

// names returns the names in a directory.
func names(t *testing.T, dir string) string {
	t.Helper()
	list, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, e := range list {
		all = append(all, e.Name())
	}
	return strings.Join(all, " ")
}

// A backup of either engine, made twice while the service works, restores a service on either
// engine that has everything acknowledged before.
func TestBackupAndRestore(t *testing.T) {
	dbtest.EachEmptyURL(t, func(t *testing.T, url string) {
		data, to := t.TempDir(), filepath.Join(t.TempDir(), "backup")
		s := servertest.Start(t, servertest.Database(url), servertest.Data(data))
		settings := []string{"--data", data}
		if strings.HasPrefix(url, "postgres") {
			settings = append(settings, "--database", url)
		}
		c := signIn(t, s)
		if err := c.Create("Entwürfe/alt", nil).Wait(); err != nil {
			t.Fatal(err)
		}
		var acknowledged []string
		put := func(name, subject string, size int, flags ...imap.Flag) {
			t.Helper()
			line, err := file(c, name, subject, size, flags...)
			if err != nil {
				t.Fatal(err)
			}
			acknowledged = append(acknowledged, line)
		}
		put("INBOX", "small", 100, imap.FlagSeen)
		put("INBOX", "large", 300_000)
		put("Entwürfe/alt", "another", 70_000, imap.FlagFlagged, "$Label")
		later := s.API("POST", "/outbound/send", map[string]any{
			"from_email": s.Dev.Mailboxes[0].Address, "to": []string{"someone@elsewhere.test"}, "subject": "later", "text": "later",
			"send_at": time.Now().Add(time.Hour).UTC().Format(time.RFC3339),
		})
		if later.Status != 202 {
			t.Fatalf("%d %s", later.Status, later.Body)
		}
		status, out, errs := run(t, nil, append(append([]string{"backup"}, settings...), to)...)
		if status != 0 || !strings.Contains(out, "2 large messages") || !strings.Contains(out, "2 of them new") {
			t.Fatalf("status %d, %s%s", status, out, errs)
		}

		// The second backup, while messages are filed.
		put("INBOX", "a day later", 100_000)
		busy, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		other := signIn(t, s)
		go func() {
			var err error
			for n := 0; busy.Err() == nil && err == nil; n++ {
				_, err = file(other, "Archive", "meanwhile", 1+n%2*100_000)
			}
			ended <- err
		}()
		stray := filepath.Join(to, "blobs", "2a", "000000000000002a")
		if err := os.WriteFile(stray, []byte("of a message that is gone"), 0o600); err != nil {
			t.Fatal(err)
		}
		status, out, errs = run(t, nil, append(append([]string{"backup"}, settings...), to)...)
		stop()
		if err := <-ended; err != nil {
			t.Fatal(err)
		}
		if status != 0 || strings.Contains(out, " 0 of them new") {
			t.Fatalf("status %d, %s%s", status, out, errs)
		}
		if _, err := os.Stat(stray); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("a file that no message has is still in the backup: %v", err)
		}
		if left := regexp.MustCompile(`manifest-[0-9a-f]{32}`).ReplaceAllString(names(t, to), "manifest"); left != "backup.json blobs ca.key ca.pem mailstead.db manifest secret.key" {
			t.Errorf("the backup holds %s", left)
		}
		now, validity := mailsOf(t, s)
		if err := s.Stop(); err != nil {
			t.Fatal(err)
		}

		dbtest.EachEmptyURL(t, func(t *testing.T, target string) {
			restored := filepath.Join(t.TempDir(), "restored")
			settings := []string{"--data", restored}
			if strings.HasPrefix(target, "postgres") {
				settings = append(settings, "--database", target)
			}
			restore := append(append([]string{"restore", "--hold"}, settings...), to)
			if status, _, errs := run(t, nil, restore...); status != 0 {
				t.Fatalf("status %d, %s", status, errs)
			}
			refused(t, "already", nil, restore...)
			if strings.HasPrefix(target, "postgres") { // nothing else is touched either
				node := t.TempDir()
				if err := os.WriteFile(filepath.Join(node, "search.db"), nil, 0o600); err != nil {
					t.Fatal(err)
				}
				refused(t, "already", nil, "restore", "--data", node, "--database", target, to)
				if left := names(t, node); left != "lock search.db" {
					t.Errorf("what was refused left %s", left)
				}
			}
			known, err := os.ReadFile(filepath.Join(data, "dev.json")) // the sandbox's own passwords
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(restored, "dev.json"), known, 0o600); err != nil {
				t.Fatal(err)
			}
			again := servertest.Start(t, servertest.Database(target), servertest.Data(restored))
			if left := names(t, restored); strings.Contains(left, ".restore") {
				t.Errorf("the data folder holds %s", left)
			}
			if again.Dev.Mailboxes[1] != s.Dev.Mailboxes[1] || again.Dev.APIKey != s.Dev.APIKey {
				t.Errorf("the password or the key is another one")
			}
			got, others := mailsOf(t, again)
			for _, line := range acknowledged {
				if !slices.Contains(got, line) {
					t.Errorf("%s is gone; there is %q", line, got)
				}
			}
			for _, line := range got {
				if !slices.Contains(now, line) {
					t.Errorf("%s was never there", line)
				}
			}
			if len(others) != len(validity) {
				t.Errorf("folders %v have become %v", validity, others)
			}
			for name, v := range validity {
				if others[name] <= v {
					t.Errorf("%s had UIDVALIDITY %d and has %d", name, v, others[name])
				}
			}
			status, out, errs := run(t, nil, append([]string{"queue", "list", "--held", "--json"}, settings...)...)
			if status != 0 || strings.Count(out, "someone@elsewhere.test") != 1 {
				t.Errorf("what waited is not held: status %d, %s%s", status, out, errs)
			}
			// Secrets can be decrypted: messages are signed and sent.
			if a := again.API("POST", "/outbound/send", map[string]any{
				"from_email": again.Dev.Mailboxes[0].Address, "to": []string{again.Dev.Mailboxes[1].Address}, "subject": "news", "text": "news",
			}); a.Status != 202 {
				t.Fatalf("%d %s", a.Status, a.Body)
			}
			servertest.Eventually(t, func() string {
				if all := held(t, again, 1); !slices.ContainsFunc(all, func(line string) bool { return strings.Contains(line, " news ") }) {
					return fmt.Sprintf("new mail did not arrive: %q", all)
				}
				return ""
			})
		})
	})
}

// Lost files are reported, and the rest is copied; unintended targets are rejected.
func TestBackupRefuses(t *testing.T) {
	data, to := t.TempDir(), filepath.Join(t.TempDir(), "backup")
	refused(t, "no service has run", nil, "backup", "--data", data, to)
	s := servertest.Start(t, servertest.Data(data))
	c := signIn(t, s)
	for _, size := range []int{100, 100_000, 100_000} {
		if _, err := file(c, "INBOX", "letter", size); err != nil {
			t.Fatal(err)
		}
	}
	before, err := c.Select("INBOX", nil).Wait()
	if err != nil {
		t.Fatal(err)
	}
	refused(t, "data folder", nil, "backup", "--data", data, data)
	full := t.TempDir()
	if err := os.WriteFile(filepath.Join(full, "thesis.doc"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	refused(t, "something else", nil, "backup", "--data", data, full)
	refused(t, "another secret key", nil, "backup", "--data", data, "--secret-key", strings.Repeat("ab", 32), to)
	nowhere := filepath.Join(t.TempDir(), "nowhere")
	refused(t, "no backup", nil, "restore", "--data", nowhere, full)
	if _, err := os.Lstat(nowhere); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("what is no backup left a data folder: %v", err)
	}

	blobs, err := filepath.Glob(filepath.Join(data, "blobs", "??", "*"))
	if err != nil || len(blobs) != 2 {
		t.Fatalf("%v, %v", blobs, err)
	}
	if err := os.Truncate(blobs[0], 100); err != nil {
		t.Fatal(err)
	}
	refused(t, "all else is backed up, but 1 files are lost", nil, "backup", "--data", data, to)
	about, err := os.ReadFile(filepath.Join(to, "backup.json"))
	if err != nil || !bytes.Contains(about, []byte(`"`+filepath.Base(blobs[0])+`"`)) {
		t.Errorf("%s, %v", about, err)
	}
	refused(t, "another process uses the data folder", nil, "restore", "--data", data, to)
	if err := s.Stop(); err != nil {
		t.Fatal(err)
	}
	refused(t, "is there already", nil, "restore", "--data", data, to)
	other := filepath.Join(t.TempDir(), "other")
	if err := os.Rename(filepath.Join(to, "secret.key"), filepath.Join(to, "away")); err != nil {
		t.Fatal(err)
	}
	refused(t, "the secret key is not in the backup", nil, "restore", "--data", other, to)
	refused(t, "another secret key", nil, "restore", "--data", other, "--secret-key", strings.Repeat("ab", 32), to)
	// A wrong key in the backup is not installed, so that the right one is accepted afterwards.
	if err := os.WriteFile(filepath.Join(to, "secret.key"), []byte(strings.Repeat("ab", 32)), 0o600); err != nil {
		t.Fatal(err)
	}
	refused(t, "another secret key", nil, "restore", "--data", other, to)
	if left := names(t, other); left != "lock" {
		t.Errorf("the data folder holds %s", left)
	}
	if err := os.Remove(filepath.Join(to, "secret.key")); err != nil {
		t.Fatal(err)
	}
	key, err := os.ReadFile(filepath.Join(to, "away"))
	if err != nil {
		t.Fatal(err)
	}
	refused(t, "all else is restored", nil, "restore", "--moved", "--data", other, "--secret-key", strings.TrimSpace(string(key)), to)
	if err := os.WriteFile(filepath.Join(other, "secret.key"), key, 0o600); err != nil {
		t.Fatal(err)
	}
	known, err := os.ReadFile(filepath.Join(data, "dev.json"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(other, "dev.json"), known, 0o600); err != nil {
		t.Fatal(err)
	}
	c = signIn(t, servertest.Start(t, servertest.Data(other)))
	if box, err := c.Select("INBOX", nil).Wait(); err != nil || box.NumMessages != 3 || box.UIDValidity != before.UIDValidity {
		t.Errorf("%v, %v; want 3 messages under UIDVALIDITY %d", box, err, before.UIDValidity)
	}
}

// A new service does not replace the previous one in its backup.
func TestBackupOfAnother(t *testing.T) {
	to := filepath.Join(t.TempDir(), "backup")
	s := servertest.Start(t)
	if _, err := file(signIn(t, s), "INBOX", "large", 100_000); err != nil {
		t.Fatal(err)
	}
	if status, _, errs := run(t, nil, "backup", "--data", s.Config.Data, to); status != 0 {
		t.Fatal(errs)
	}
	other := servertest.Start(t)
	refused(t, "another service, with another secret key", nil, "backup", "--data", other.Config.Data, to)
	// A service with the key of the first one is still another service.
	key, err := os.ReadFile(filepath.Join(s.Config.Data, "secret.key"))
	if err != nil {
		t.Fatal(err)
	}
	third := servertest.Start(t, func(c *server.Config) { c.SecretKey = strings.TrimSpace(string(key)) })
	refused(t, "another service, with other accounts", nil, "backup", "--data", third.Config.Data, "--secret-key", strings.TrimSpace(string(key)), to)
	refused(t, "the service's own folder", nil, "restore", "--data", filepath.Join(t.TempDir(), "restored"), "--blobs", filepath.Join(to, "blobs"), to)
	theirs := filepath.Join(other.Config.Data, "blobs") // which they sweep
	refused(t, "another service's folder", nil, "restore", "--data", filepath.Join(t.TempDir(), "restored"), "--blobs", theirs, to)
	if copied, err := filepath.Glob(filepath.Join(theirs, "??", "*")); err != nil || len(copied) > 0 {
		t.Errorf("they have %v, %v", copied, err)
	}
	refused(t, "not available", nil, "restore", "--data", filepath.Join(t.TempDir(), "restored"), "--blobs", "s3://bucket", to)
	refused(t, "the backup itself", nil, "restore", "--data", to, to)
	for _, left := range []string{".mailstead.db.partXYZ", ".mailstead.db.partXYZ-journal", ".part-123"} { // left by a killed backup
		if err := os.WriteFile(filepath.Join(to, left), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if status, _, errs := run(t, nil, "backup", "--data", s.Config.Data, to); status != 0 {
		t.Fatal(errs)
	}
	if left := names(t, to); strings.Contains(left, "part") {
		t.Errorf("the backup holds %s", left)
	}
	status, out, errs := run(t, nil, "restore", "--data", filepath.Join(t.TempDir(), "restored"), to)
	if status != 0 || !strings.Contains(out, "with 1 large messages") {
		t.Errorf("status %d, %s%s", status, out, errs)
	}
}

// A backup must not use the service's own blob directory, in which a running service has files
// without messages yet.
func TestBackupBesideBlobs(t *testing.T) {
	to := t.TempDir()
	own := filepath.Join(to, "blobs")
	s := servertest.Start(t, func(c *server.Config) { c.Blobs = own })
	coming := filepath.Join(own, "2a", "000000000000002a")
	if err := os.WriteFile(coming, []byte("of a message that is being filed"), 0o600); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(to, link); err != nil {
		t.Fatal(err)
	}
	for _, folder := range []string{to, link} {
		refused(t, "the service's own folder", nil, "backup", "--data", s.Config.Data, "--blobs", own, folder)
	}
	if _, err := os.Stat(coming); err != nil {
		t.Error(err)
	}
}

// restored restores a service from a backup, and returns its data directory with the dev settings
// of s.
func restored(t *testing.T, s *servertest.Server, backup string, args ...string) (data string) {
	t.Helper()
	data = t.TempDir()
	if status, _, errs := run(t, nil, append([]string{"restore", "--data", data, backup}, args...)...); status != 0 {
		t.Fatal(errs)
	}
	known, err := os.ReadFile(filepath.Join(s.Config.Data, "dev.json"))
	if err == nil {
		err = os.WriteFile(filepath.Join(data, "dev.json"), known, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// A service restored beside the original deletes none of its files, even if it has the same blob
// directory by mistake; a service that replaces the original does.
func TestRestoreBesideBlobs(t *testing.T) {
	to, own := filepath.Join(t.TempDir(), "backup"), filepath.Join(t.TempDir(), "blobs")
	blobs := func(c *server.Config) { c.Blobs = own }
	s := servertest.Start(t, blobs)
	if status, _, errs := run(t, nil, "backup", "--data", s.Config.Data, "--blobs", own, to); status != 0 {
		t.Fatal(errs)
	}
	restored := func(args ...string) *servertest.Server {
		t.Helper()
		return servertest.Start(t, servertest.Data(restored(t, s, to, append(args, "--blobs", own)...)), blobs)
	}
	if err := restored().Blobs.Files.CheckOwner(); !fault.Is(err, fault.Conflict) {
		t.Errorf("a copy has the folder: %v", err)
	}
	if err := s.Blobs.Files.CheckOwner(); err != nil {
		t.Error(err)
	}
	if err := s.Stop(); err != nil {
		t.Fatal(err)
	}
	if err := restored("--moved").Blobs.Files.CheckOwner(); err != nil {
		t.Errorf("the service that was moved: %v", err)
	}
}

// An application that received events after the backup continues with the restored service, and
// receives all of its events.
func TestEventsAfterRestore(t *testing.T) {
	to := filepath.Join(t.TempDir(), "backup")
	s := servertest.Start(t)
	happens := func(s *servertest.Server) (message string) {
		t.Helper()
		var sent struct{ ID string }
		s.API("POST", "/outbound/send", map[string]any{
			"from_email": s.Dev.Mailboxes[0].Address, "to": []string{"delivered@simulator.test"}, "subject": "news", "text": "news",
		}).Decode(t, &sent)
		return sent.ID
	}
	if status, _, errs := run(t, nil, "backup", "--data", s.Config.Data, to); status != 0 {
		t.Fatal(errs)
	}
	happens(s)
	c, err := client.New(s.Dev.BaseURL, s.Dev.APIKey)
	if err != nil {
		t.Fatal(err)
	}
	for _, err := range c.StreamEvents(t.Context(), client.EventFilter{MessageID: happens(s)}, "0") {
		if err != nil {
			t.Fatal(err)
		}
		break
	}
	page, err := c.ListEvents(t.Context(), client.EventFilter{}, client.Paging{Limit: 100, Order: client.Ascending})
	if err != nil || page.HasMore {
		t.Fatal(page, err)
	}
	cursor := page.NextCursor
	if err := s.Stop(); err != nil {
		t.Fatal(err)
	}
	again := servertest.Start(t, servertest.Data(restored(t, s, to)))
	message := happens(again)
	servertest.Eventually(t, func() string {
		if a := again.API("GET", "/events?order=asc&after="+cursor, nil); !strings.Contains(string(a.Body), message) {
			return fmt.Sprintf("after %s comes %s", cursor, a.Body)
		}
		return ""
	})
}

// A failed first backup does not prevent the next one.
func TestBackupAgain(t *testing.T) {
	s := servertest.Start(t)
	to, certificate := filepath.Join(t.TempDir(), "backup"), filepath.Join(s.Config.Data, "ca.pem")
	if err := errors.Join(os.Rename(certificate, certificate+".away"), os.Mkdir(certificate, 0o700)); err != nil {
		t.Fatal(err)
	}
	refused(t, "is a directory", nil, "backup", "--data", s.Config.Data, to)
	if err := errors.Join(os.Remove(certificate), os.Rename(certificate+".away", certificate)); err != nil {
		t.Fatal(err)
	}
	// Other leftovers of a killed backup.
	if err := os.WriteFile(filepath.Join(to, ".part-1234"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if status, _, errs := run(t, nil, "backup", "--data", s.Config.Data, to); status != 0 {
		t.Fatal(errs)
	}
}

// A killed backup leaves a complete one, the previous or the new one.
func TestBackupKilled(t *testing.T) {
	data, to := t.TempDir(), filepath.Join(t.TempDir(), "backup")
	s := servertest.Start(t, servertest.Data(data))
	c := signIn(t, s)
	put := func() {
		t.Helper()
		if _, err := file(c, "INBOX", "large", 100_000); err != nil {
			t.Fatal(err)
		}
	}
	put()
	began := time.Now()
	if status, _, errs := run(t, nil, "backup", "--data", data, to); status != 0 {
		t.Fatal(errs)
	}
	took := time.Since(began)
	for range servertest.SoakSize(6, 200) {
		put()
		taking := command(t, nil, "backup", "--data", data, to)
		if err := taking.Start(); err != nil {
			t.Fatal(err)
		}
		kill := time.AfterFunc(rand.N(took), func() { _ = taking.Process.Kill() })
		_ = taking.Wait() // killed or not
		kill.Stop()
		if status, _, errs := run(t, nil, "restore", "--data", filepath.Join(t.TempDir(), "restored"), to); status != 0 {
			t.Fatal(errs)
		}
	}
}
