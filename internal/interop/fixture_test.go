// SPDX-License-Identifier: Apache-2.0

// Package interop tests other programs with the running service: mail clients by their own rules, a
// real Postfix as the outside world, an independent verifier of our signatures, and the README's
// tour.
package interop

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/emersion/go-imap/v2"
	"github.com/emersion/go-imap/v2/imapclient"

	"github.com/mailstead/mailstead/internal/needtest"
	"github.com/mailstead/mailstead/internal/server/servertest"
)

// program runs programs with an empty home directory.
type program struct {
	t    testing.TB
	home string
	env  []string
}

func newProgram(t testing.TB, env ...string) *program {
	t.Helper()
	return &program{t: t, home: t.TempDir(), env: env}
}

func (p *program) run(stdin string, name string, args ...string) (output string, err error) {
	p.t.Helper()
	name = needtest.Program(p.t, name)
	ctx, cancel := context.WithTimeout(p.t.Context(), servertest.Timeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = p.home
	cmd.Env = append([]string{"HOME=" + p.home, "PATH=" + os.Getenv("PATH"), "LC_ALL=C.UTF-8", "TERM=dumb"}, p.env...)
	cmd.Stdin = strings.NewReader(stdin)
	out, err := cmd.CombinedOutput()
	if ctx.Err() != nil {
		p.t.Fatalf("%s did not end within %v:\n%s", name, servertest.Timeout, out)
	}
	return string(out), err
}

// must runs a program that must succeed.
func (p *program) must(stdin string, name string, args ...string) string {
	p.t.Helper()
	out, err := p.run(stdin, name, args...)
	if err != nil {
		p.t.Fatalf("%s: %v\n%s", name, err, out)
	}
	return out
}

// write writes a file in the program's home and returns its path.
func (p *program) write(name, text string) string {
	p.t.Helper()
	path := filepath.Join(p.home, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		p.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		p.t.Fatal(err)
	}
	return path
}

// contains fails the test unless each of the words is in the text, in order.
func contains(t testing.TB, text string, words ...string) {
	t.Helper()
	rest := text
	for _, w := range words {
		_, after, found := strings.Cut(rest, w)
		if !found {
			t.Fatalf("%q is not where it should be in:\n%s", w, text)
		}
		rest = after
	}
}

// login opens an IMAP session for mailbox i: 0 is alice's, 1 bob's.
func login(t testing.TB, s *servertest.Server, i int, o *imapclient.Options) *imapclient.Client {
	t.Helper()
	if o == nil {
		o = &imapclient.Options{}
	}
	o.TLSConfig = s.TLS()
	c, err := imapclient.DialTLS(s.Addr("imaps"), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	box := s.Dev.Mailboxes[i]
	if err := c.Login(box.Address, box.Password).Wait(); err != nil {
		t.Fatal(err)
	}
	return c
}

// arrived waits for the message with a subject in a folder, and returns it with headers.
func arrived(t testing.TB, s *servertest.Server, i int, folder, subject string) string {
	t.Helper()
	c := login(t, s, i, nil)
	var text string
	servertest.Eventually(t, func() string {
		found := search(t, c, folder, subject)
		if len(found) == 0 {
			return fmt.Sprintf("%s has no %q in %s", s.Dev.Mailboxes[i].Address, subject, folder)
		}
		if len(found) > 1 {
			t.Fatalf("%s has %q %d times", s.Dev.Mailboxes[i].Address, subject, len(found))
		}
		whole := &imap.FetchItemBodySection{Peek: true}
		all, err := c.Fetch(imap.UIDSetNum(found...), &imap.FetchOptions{BodySection: []*imap.FetchItemBodySection{whole}}).Collect()
		if err != nil || len(all) != 1 {
			t.Fatalf("fetching %q: %d messages, %v", subject, len(all), err)
		}
		text = string(all[0].FindBodySection(whole))
		return ""
	})
	return text
}

func search(t testing.TB, c *imapclient.Client, folder, subject string) []imap.UID {
	t.Helper()
	if _, err := c.Select(folder, nil).Wait(); err != nil {
		t.Fatal(err)
	}
	found, err := c.UIDSearch(&imap.SearchCriteria{
		Header: []imap.SearchCriteriaHeaderField{{Key: "Subject", Value: subject}},
	}, nil).Wait()
	if err != nil {
		t.Fatal(err)
	}
	return found.AllUIDs()
}

// absent fails the test if a mailbox has a message with a subject.
func absent(t testing.TB, s *servertest.Server, i int, subject string) {
	t.Helper()
	if found := search(t, login(t, s, i, nil), "INBOX", subject); len(found) > 0 {
		t.Errorf("%s has %q", s.Dev.Mailboxes[i].Address, subject)
	}
}

// file appends a message to a mailbox's folder over IMAP.
func file(t testing.TB, s *servertest.Server, i int, folder, text string, flags ...imap.Flag) {
	t.Helper()
	c := login(t, s, i, nil)
	text = strings.ReplaceAll(text, "\n", "\r\n")
	a := c.Append(folder, int64(len(text)), &imap.AppendOptions{Flags: flags})
	if _, err := io.Copy(a, bytes.NewBufferString(text)); err != nil {
		t.Fatal(err)
	}
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := a.Wait(); err != nil {
		t.Fatal(err)
	}
}

// message returns a small message with a subject.
func message(from, to, subject, text string) string {
	return fmt.Sprintf("From: %s\nTo: %s\nSubject: %s\nDate: Thu, 01 Jan 2026 12:00:00 +0000\nMessage-ID: <%s@example.net>\n\n%s\n",
		from, to, subject, strings.ReplaceAll(subject, " ", "-"), text)
}

// store changes the flags of the message with a subject.
func store(t testing.TB, c *imapclient.Client, folder, subject string, op imap.StoreFlagsOp, flags ...imap.Flag) {
	t.Helper()
	found := search(t, c, folder, subject)
	if err := c.Store(imap.UIDSetNum(found...), &imap.StoreFlags{Op: op, Flags: flags, Silent: true}, nil).Close(); err != nil || len(found) != 1 {
		t.Fatalf("%d messages are %q: %v", len(found), subject, err)
	}
}

// selectable returns bob's folders.
func selectable(t testing.TB, c *imapclient.Client) (names []string) {
	t.Helper()
	list, err := c.List("", "*", nil).Collect()
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range list {
		if !slices.Contains(l.Attrs, imap.MailboxAttrNoSelect) && !slices.Contains(l.Attrs, imap.MailboxAttrNonExistent) {
			names = append(names, l.Mailbox)
		}
	}
	return names
}

// mails returns all of bob's messages: folder, subject and flags of each.
func mails(t testing.TB, s *servertest.Server) (all []string) {
	t.Helper()
	c := login(t, s, 1, nil)
	for _, name := range selectable(t, c) {
		if box, err := c.Select(name, &imap.SelectOptions{ReadOnly: true}).Wait(); err != nil {
			t.Fatal(err)
		} else if box.NumMessages == 0 {
			continue
		}
		rows, err := c.Fetch(imap.SeqSet{{Start: 1}}, &imap.FetchOptions{Envelope: true, Flags: true}).Collect()
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range rows {
			var flags []string
			for _, f := range m.Flags {
				if f != `\Recent` {
					flags = append(flags, string(f))
				}
			}
			slices.Sort(flags)
			all = append(all, fmt.Sprintf("%s: %s (%s)", name, m.Envelope.Subject, strings.Join(flags, " ")))
		}
	}
	slices.Sort(all)
	return all
}

// highest returns the mod-sequences of bob's folders, which any change raises.
func highest(t testing.TB, s *servertest.Server) map[string]uint64 {
	t.Helper()
	c := login(t, s, 1, nil)
	all := map[string]uint64{}
	for _, name := range selectable(t, c) {
		st, err := c.Status(name, &imap.StatusOptions{HighestModSeq: true}).Wait()
		if err != nil {
			t.Fatal(err)
		}
		all[name] = st.HighestModSeq
	}
	return all
}
