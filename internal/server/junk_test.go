// SPDX-License-Identifier: Apache-2.0

package server_test

import (
	"bytes"
	"testing"

	"github.com/emersion/go-imap/v2"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/db/dbtest"
	"github.com/mailstead/mailstead/internal/server/servertest"
)

// Moving mail from the API into Junk is recorded as a complaint, once. Moving it elsewhere is not,
// and the complaint does not count for other recipients.
func TestJunkComplains(t *testing.T) {
	servertest.Each(t, func(t *testing.T, s *servertest.Server) {
		a := s.API("POST", "/outbound/send", map[string]any{
			"from_email": "alice@demo.test", "to": []string{"bob@demo.test", "alice@demo.test"}, "subject": "Offer", "text": "Buy",
		})
		var m sent
		a.Decode(t, &m)
		arrived(t, s, 1, 1)
		arrived(t, s, 0, 1)
		delivered(t, s, m.ID)
		c := open(t, s, 1)
		move := func(from, to string, copying bool) {
			t.Helper()
			if _, err := c.Select(from, nil).Wait(); err != nil {
				t.Fatal(err)
			}
			var err error
			if copying {
				_, err = c.Copy(imap.SeqSetNum(1), to).Wait()
			} else {
				_, err = c.Move(imap.SeqSetNum(1), to).Wait()
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		statuses := func() (all []string) {
			s.API("GET", "/outbound/messages/"+m.ID, nil).Decode(t, &m)
			for _, r := range m.Recipients {
				all = append(all, r.Email+" "+r.Status)
			}
			return all
		}
		move("INBOX", "Archive", false)
		if got := statuses(); got[0] != "bob@demo.test delivered" {
			t.Errorf("after a move to Archive: %q", got)
		}
		move("Archive", "Junk", true)
		if got := statuses(); got[0] != "bob@demo.test complained" || got[1] != "alice@demo.test delivered" {
			t.Errorf("after a copy to Junk: %q", got)
		}
		move("Archive", "Junk", false)
		if got := s.API("GET", "/suppressions", nil); bytes.Count(got.Body, []byte(`"complaint"`)) != 1 || !bytes.Contains(got.Body, []byte("bob@demo.test")) {
			t.Errorf("suppressions %s", got.Body)
		}
	})
}

// A database error is reported to the client, and the complaint can be made again.
func TestJunkInTrouble(t *testing.T) {
	servertest.Each(t, func(t *testing.T, s *servertest.Server) {
		a := s.API("POST", "/outbound/send", map[string]any{
			"from_email": "alice@demo.test", "to": []string{"bob@demo.test"}, "subject": "Offer", "text": "Buy",
		})
		var m sent
		a.Decode(t, &m)
		delivered(t, s, m.ID)
		id, err := db.ParseID(m.ID)
		if err != nil {
			t.Fatal(err)
		}
		bob := s.Dev.Mailboxes[1].ID
		dbtest.Exec(t, s.DB, hideMailboxes.With())
		s.Mailboxes.InvalidateAll()
		err = s.Inbound.RecordJunked(t.Context(), bob, []db.ID{id})
		dbtest.Exec(t, s.DB, showMailboxes.With())
		if err == nil {
			t.Error("nothing is told of it")
		}
		if err := s.Inbound.RecordJunked(t.Context(), bob, []db.ID{id}); err != nil {
			t.Error(err)
		}
		if s.API("GET", "/outbound/messages/"+m.ID, nil).Decode(t, &m); m.Recipients[0].Status != "complained" {
			t.Errorf("it is %s", m.Recipients[0].Status)
		}
	})
}

var (
	hideMailboxes = db.SQL(`ALTER TABLE mailbox RENAME TO mailbox_hidden`)
	showMailboxes = db.SQL(`ALTER TABLE mailbox_hidden RENAME TO mailbox`)
)
