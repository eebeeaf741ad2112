// SPDX-License-Identifier: Apache-2.0

package interop

import (
	"slices"
	"testing"
	"time"

	"github.com/emersion/go-imap/v2"
	"github.com/emersion/go-imap/v2/imapclient"

	"github.com/mailstead/mailstead/internal/server/servertest"
)

// An idle client is notified of others' changes: a new message, a flag, an expunged message.
func TestIdle(t *testing.T) {
	s := servertest.Start(t)
	exists, flags, gone := make(chan uint32, 10), make(chan []imap.Flag, 10), make(chan uint32, 10)
	c := login(t, s, 1, &imapclient.Options{UnilateralDataHandler: &imapclient.UnilateralDataHandler{
		Mailbox: func(d *imapclient.UnilateralDataMailbox) {
			if d.NumMessages != nil {
				exists <- *d.NumMessages
			}
		},
		Fetch: func(m *imapclient.FetchMessageData) {
			if all, err := m.Collect(); err == nil {
				flags <- all.Flags
			}
		},
		Expunge: func(n uint32) { gone <- n },
	}})
	if _, err := c.Select("INBOX", nil).Wait(); err != nil {
		t.Fatal(err)
	}
	idle, err := c.Idle()
	if err != nil {
		t.Fatal(err)
	}
	if a := s.API("POST", "/outbound/send", map[string]any{
		"from_email": "alice@demo.test", "to": []string{"bob@demo.test"}, "subject": "wake up", "text": "now",
	}); a.Status != 202 {
		t.Fatalf("%d %s", a.Status, a.Body)
	}
	if n := told(t, exists, "of a new message"); n != 1 {
		t.Errorf("there are %d messages, they say", n)
	}

	other := login(t, s, 1, nil)
	found := imap.UIDSetNum(search(t, other, "INBOX", "wake up")...)
	if err := other.Store(found, &imap.StoreFlags{Op: imap.StoreFlagsAdd, Flags: []imap.Flag{imap.FlagFlagged}}, nil).Close(); err != nil {
		t.Fatal(err)
	}
	if f := told(t, flags, "of a flag"); !slices.Contains(f, imap.FlagFlagged) {
		t.Errorf("the flags are %v, they say", f)
	}
	if _, err := other.Move(found, "Archive").Wait(); err != nil {
		t.Fatal(err)
	}
	if n := told(t, gone, "of a message that went"); n != 1 {
		t.Errorf("message %d went, they say", n)
	}
	if err := idle.Close(); err != nil {
		t.Fatal(err)
	}
	if err := idle.Wait(); err != nil {
		t.Fatal(err)
	}
	arrived(t, s, 1, "Archive", "wake up")
}

func told[T any](t *testing.T, news chan T, what string) T {
	t.Helper()
	select {
	case v := <-news:
		return v
	case <-time.After(servertest.Timeout):
		t.Fatalf("nobody told %s within %v", what, servertest.Timeout)
		panic("unreachable")
	}
}
