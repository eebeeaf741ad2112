// SPDX-License-Identifier: Apache-2.0

package server_test

import (
	"errors"
	"fmt"
	"io"
	"net/smtp"
	"net/textproto"
	"strings"
	"testing"

	"github.com/emersion/go-imap/v2"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/server/servertest"
)

var taught = db.SQL(`SELECT spam, ham FROM spam_training_total WHERE account = $1`)

var accountOfMailbox = db.SQL(`SELECT account FROM mailbox WHERE id = $1`)

// bring sends a message to the MX, which must accept it.
func bring(t *testing.T, s *servertest.Server, to, text string) {
	t.Helper()
	if said := refused(t, s, to, text); said != "" {
		t.Fatal(said)
	}
}

// refused sends a message to the MX, and returns its rejection, or "" if it is accepted.
func refused(t *testing.T, s *servertest.Server, to, text string) string {
	t.Helper()
	c, err := smtp.Dial(s.Addr("smtp"))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close() //nolint:errcheck // after Quit
	step := func(err error) {
		if err != nil {
			t.Helper()
			t.Fatal(err)
		}
	}
	step(c.Mail("eve@elsewhere.example"))
	step(c.Rcpt(to))
	w, err := c.Data()
	step(err)
	_, err = io.WriteString(w, text)
	step(err)
	var refusal *textproto.Error
	if err := w.Close(); errors.As(err, &refusal) {
		return fmt.Sprint(refusal.Code, " ", refusal.Msg)
	} else if err != nil {
		t.Fatal(err)
	}
	step(c.Quit())
	return ""
}

// offer returns a message of a kind, with some unique words.
func offer(kind string, n int) string {
	about := map[string]string{
		"spam": "Cheap replica watches, luxury at ninety percent discount, order today and win",
		"ham":  "The minutes of the meeting about the bridge, with the engineers' drawings attached",
	}[kind]
	return fmt.Sprintf("From: someone@elsewhere.example\r\nMessage-ID: <%s%d@elsewhere.example>\r\nSubject: %s number%d\r\n\r\n%s word%dword\r\n", kind, n, about[:20], n, about, n)
}

// An account trains the filter by moving its mail over IMAP. No message counts twice, and moving a
// message back undoes its training.
func TestBayesLearnsByMoves(t *testing.T) {
	servertest.Each(t, func(t *testing.T, s *servertest.Server) {
		ctx := t.Context()
		var account db.ID
		if err := s.DB.One(ctx, accountOfMailbox.With(s.Dev.Mailboxes[0].ID), &account); err != nil {
			t.Fatal(err)
		}
		const many = 10
		alice := s.Dev.Mailboxes[0].Address
		for n := range many {
			bring(t, s, alice, offer("spam", n))
		}
		c := open(t, s, 0)
		move := func(from, to string, messages imap.NumSet, copying bool) {
			t.Helper()
			if _, err := c.Select(from, nil).Wait(); err != nil {
				t.Fatal(err)
			}
			var err error
			if copying {
				_, err = c.Copy(messages, to).Wait()
			} else {
				_, err = c.Move(messages, to).Wait()
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		knows := func(spam, ham int) {
			t.Helper()
			for more := true; more; { // in parallel with the background task
				var err error
				if more, err = s.Filter.Builtin.Bayes.LearnNext(ctx); err != nil {
					t.Fatal(err)
				}
			}
			servertest.Eventually(t, func() string {
				var gotSpam, gotHam int
				if err := s.DB.One(ctx, taught.With(account), &gotSpam, &gotHam); err != nil {
					return err.Error()
				}
				if gotSpam != spam || gotHam != ham {
					return fmt.Sprintf("it knows %d of spam and %d of ham, want %d and %d", gotSpam, gotHam, spam, ham)
				}
				return ""
			})
		}
		all := imap.SeqSet{{Start: 1, Stop: 0}}
		move("INBOX", "Junk", all, false)
		knows(many, 0)
		for n := range many {
			bring(t, s, alice, offer("ham", n))
		}
		move("INBOX", "INBOX", imap.SeqSetNum(1), true) // a message with two copies counts once
		move("INBOX", "Archive", all, false)
		knows(many, many)

		// Similar messages are filed in the right folder.
		bring(t, s, alice, offer("ham", 100))
		bring(t, s, alice, offer("spam", 100))
		bring(t, s, s.Dev.Mailboxes[1].Address, offer("spam", 101)) // bob belongs to the same account
		count := func(folder string) uint32 {
			t.Helper()
			st, err := c.Status(folder, &imap.StatusOptions{NumMessages: true}).Wait()
			if err != nil {
				t.Fatal(err)
			}
			return *st.NumMessages
		}
		if inbox, junk := count("INBOX"), count("Junk"); inbox != 1 || junk != many+1 {
			t.Errorf("%d in the inbox, %d in Junk", inbox, junk)
		}
		var list struct {
			Data []struct {
				Results struct {
					Spam    string
					Reasons string `json:"spam_reasons"`
				} `json:"check_results"`
			}
		}
		s.API("GET", "/mailboxes/"+s.Dev.Mailboxes[1].ID.String()+"/messages", nil).Decode(t, &list)
		if len(list.Data) != 1 || list.Data[0].Results.Spam != "spam" || !strings.HasPrefix(list.Data[0].Results.Reasons, "BAYES_99=5.5 ") {
			t.Errorf("bob's: %+v", list.Data)
		}

		// Copies and repeated moves count once; moving out of Junk undoes the training.
		move("Junk", "INBOX", imap.SeqSetNum(1), false)
		knows(many-1, many+1)
		move("INBOX", "Archive", imap.SeqSetNum(2), true)
		move("INBOX", "Archive", imap.SeqSetNum(2), true)
		knows(many-1, many+1)
		move("INBOX", "Junk", imap.SeqSetNum(2), true)
		move("INBOX", "Junk", imap.SeqSetNum(2), false)
		knows(many, many)
		move("Junk", "Trash", imap.SeqSetNum(1), false)
		knows(many, many)

		// None of it is forwarded, whatever the domain's setting for spam is.
		for _, one := range []struct{ address, target string }{{"out", ""}, {"both", alice}} {
			targets := []string{"far@away.example.net"}
			if one.target != "" {
				targets = append(targets, one.target)
			}
			if a := s.API("POST", "/aliases", map[string]any{"address": one.address + "@demo.test", "targets": targets}); a.Status != 201 {
				t.Fatalf("%s", a.Body)
			}
		}
		if a := s.API("PATCH", "/mailboxes/"+s.Dev.Mailboxes[0].ID.String(), map[string]any{"forward_to": []string{"own@away.example.net"}}); a.Status != 200 {
			t.Fatalf("%s", a.Body)
		}
		for _, setting := range []string{"off", "junk", "enforce"} {
			if a := s.API("PATCH", "/domains/"+s.Dev.Domain.ID.String(), map[string]any{"spam_filtering": setting}); a.Status != 200 {
				t.Fatalf("%s", a.Body)
			}
			inbox, junk := count("INBOX"), count("Junk")
			if setting == "off" {
				inbox++
			} else {
				junk++
			}
			if said := refused(t, s, "out@demo.test", offer("spam", 200)); !strings.HasPrefix(said, "550 5.7.1 ") {
				t.Errorf("%s: spam that is forwarded: %q", setting, said)
			}
			bring(t, s, "both@demo.test", offer("spam", 200))
			if nowInbox, nowJunk := count("INBOX"), count("Junk"); nowInbox != inbox || nowJunk != junk {
				t.Errorf("%s: %d in the inbox, %d in Junk; want %d and %d", setting, nowInbox, nowJunk, inbox, junk)
			}
		}
		bring(t, s, "both@demo.test", offer("ham", 200))
		if text := sentOn(t, s, "far@away.example.net", 1); !strings.Contains(text, "number200") || !strings.Contains(text, "minutes of the meeting") {
			t.Errorf("sent on:\n%s", text)
		}
		if text := sentOn(t, s, "own@away.example.net", 1); !strings.Contains(text, "number200") || !strings.Contains(text, "minutes of the meeting") {
			t.Errorf("sent on for the mailbox:\n%s", text)
		}
	})
}
