// SPDX-License-Identifier: Apache-2.0

package migration_test

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/emersion/go-imap/v2"
	"github.com/emersion/go-imap/v2/imapclient"
)

// readFolder returns what a migration must preserve of a folder's messages: text, flags and date,
// in UID order.
func readFolder(t testing.TB, c *imapclient.Client, name string) (all []string) {
	t.Helper()
	at, err := c.Select(name, &imap.SelectOptions{ReadOnly: true}).Wait()
	if err != nil {
		t.Fatalf("%q: %v", name, err)
	}
	if at.NumMessages == 0 {
		return nil
	}
	cmd := c.Fetch(imap.SeqSet{{Start: 1, Stop: 0}}, &imap.FetchOptions{UID: true, Flags: true, InternalDate: true, RFC822Size: true, BodySection: []*imap.FetchItemBodySection{{Peek: true}}})
	for m := cmd.Next(); m != nil; m = cmd.Next() {
		b, err := m.Collect()
		if err != nil {
			t.Fatal(err)
		}
		if bytes.Contains(b.BodySection[0].Bytes, []byte("\r\nSubject: Your mailbox is ")) {
			continue // what the service says when the mailbox is almost full
		}
		var flags []string
		for _, f := range b.Flags {
			if f != `\Recent` {
				flags = append(flags, string(f))
			}
		}
		slices.Sort(flags)
		all = append(all, fmt.Sprintf("%d bytes %x (%s) %s", b.RFC822Size, sha256.Sum256(b.BodySection[0].Bytes), strings.Join(flags, " "), b.InternalDate.UTC()))
	}
	if err := cmd.Close(); err != nil {
		t.Fatal(err)
	}
	return all
}

// identical compares the source's folders with the local ones, which targets names, and returns the
// number of messages.
func identical(t testing.TB, there, here *imapclient.Client, targets map[string]string) (messages int) {
	t.Helper()
	for name, target := range targets {
		a, b := readFolder(t, there, name), readFolder(t, here, target)
		messages += len(a)
		if len(a) != len(b) {
			t.Errorf("%q has %d messages there, %q has %d here", name, len(a), target, len(b))
			continue
		}
		for i := range a {
			if a[i] != b[i] {
				t.Errorf("%q, message %d: %s there, %s here", name, i+1, a[i], b[i])
				break
			}
		}
	}
	return messages
}

// names returns the folders that can be opened.
func names(t testing.TB, c *imapclient.Client) (all []string) {
	t.Helper()
	list, err := c.List("", "*", nil).Collect()
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range list {
		if !slices.Contains(l.Attrs, imap.MailboxAttrNoSelect) && !slices.Contains(l.Attrs, imap.MailboxAttrNonExistent) {
			all = append(all, l.Mailbox)
		}
	}
	slices.Sort(all)
	return all
}
