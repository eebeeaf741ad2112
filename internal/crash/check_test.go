// SPDX-License-Identifier: Apache-2.0

package crash

import (
	"fmt"
	"strings"

	"github.com/emersion/go-imap/v2"

	"github.com/mailstead/mailstead/client"
	"github.com/mailstead/mailstead/internal/server/servertest"
)

// copies is the number of copies of each subject in each mailbox.
type copies map[string]map[string]int

// read reads all mailboxes over IMAP, and checks that each is consistent: as many messages as
// SELECT says, with ascending UIDs below UIDNEXT.
func (s *service) read() copies {
	s.t.Helper()
	found := copies{}
	for i, box := range s.Dev.Mailboxes {
		found[box.Address] = s.readOne(i)
	}
	return found
}

func (s *service) readOne(i int) map[string]int {
	s.t.Helper()
	box := s.Dev.Mailboxes[i]
	c := s.imap(i, nil)
	defer c.Close() //nolint:errcheck // only read
	in, err := c.Select("INBOX", &imap.SelectOptions{ReadOnly: true}).Wait()
	if err != nil {
		s.t.Fatal(err)
	}
	subjects := map[string]int{}
	if in.NumMessages == 0 {
		return subjects
	}
	all, err := c.Fetch(imap.UIDSet{{Start: 1, Stop: 0}}, &imap.FetchOptions{UID: true, Envelope: true}).Collect()
	if err != nil {
		s.t.Fatal(err)
	}
	if len(all) < int(in.NumMessages) {
		s.t.Errorf("%s: SELECT tells of %d messages, FETCH of %d", box.Address, in.NumMessages, len(all))
	}
	var last imap.UID
	for n, m := range all {
		// More may have arrived since SELECT, with higher UIDs.
		if m.UID <= last || (n < int(in.NumMessages)) != (m.UID < in.UIDNext) {
			s.t.Errorf("%s: message %d of %d has UID %d, after %d and with UIDNEXT %d", box.Address, n+1, in.NumMessages, m.UID, last, in.UIDNext)
		}
		last = m.UID
		subjects[m.Envelope.Subject]++
	}
	return subjects
}

// misplaced describes the messages that are missing or duplicated. Mail from outside was filed
// before its 250; mail from the API and submission may still be on its way, unless arrived is set.
func (l *ledger) misplaced(found copies, arrived bool) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	var bad []string
	known := map[string]*mail{}
	for _, m := range l.mails {
		known[m.subject] = m
		for _, to := range m.to {
			n := found[to][m.subject]
			switch {
			case n > 1:
				bad = append(bad, fmt.Sprintf("%s is in %s %d times", m.subject, to, n))
			case n == 0 && m.acked && (arrived || m.listener == "smtp"):
				bad = append(bad, fmt.Sprintf("%s, acknowledged at the %s listener at %s, is not in %s", m.subject, m.listener, m.accepted.Format("15:04:05.000"), to))
			}
		}
	}
	for box, subjects := range found {
		for subject := range subjects {
			if m := known[subject]; m == nil || !strings.Contains(strings.Join(m.to, " "), box) {
				bad = append(bad, fmt.Sprintf("%s has %q, which was not sent to it", box, subject))
			}
		}
	}
	if len(bad) > 10 {
		bad = append(bad[:10], fmt.Sprintf("and %d more", len(bad)-10))
	}
	return strings.Join(bad, "\n")
}

// settle waits until all acknowledged mail has arrived, and checks the reported deliveries.
func (s *service) settle(l *ledger) {
	s.t.Helper()
	servertest.Eventually(s.t, func() string { return l.misplaced(s.read(), true) })
	for _, m := range l.mails {
		if m.id == "" {
			continue
		}
		servertest.Eventually(s.t, func() string { return s.untold(m) })
	}
}

// untold compares a message's deliveries in the API with the expected ones: all delivered.
func (s *service) untold(m *mail) string {
	s.t.Helper()
	shown, err := s.Client().GetMessage(s.t.Context(), m.id)
	if err != nil {
		s.t.Fatal(err)
	}
	if len(shown.Recipients) != len(m.recipients()) {
		return fmt.Sprintf("%s has %d recipients, not %d", m.subject, len(shown.Recipients), len(m.recipients()))
	}
	for _, r := range shown.Recipients {
		if r.Status != client.Delivered {
			return fmt.Sprintf("%s to %s is %s", m.subject, r.Email, r.Status)
		}
	}
	return ""
}
