// SPDX-License-Identifier: Apache-2.0

package crash

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/emersion/go-imap/v2"
	"github.com/emersion/go-imap/v2/imapclient"

	"github.com/mailstead/mailstead/client"
	"github.com/mailstead/mailstead/internal/server/servertest"
)

// Two nodes are one service: changes on one are visible on the other.
func TestTwoNodes(t *testing.T) {
	h := newFixture(t)
	h.acrossNodes()
	h.idleAcrossNodes()
	h.oneMailbox()
	h.revokedAcrossNodes()
	h.scramAcrossNodes()
	h.refused()
	h.a.Stop()
	h.b.Stop()
}

// acrossNodes sends on one node and reads on the other.
func (h *fixture) acrossNodes() {
	h.Helper()
	large := strings.Repeat("0123456789abcdef\r\n", 10_000) // larger than what a database row holds
	m, err := h.a.Client().Send(h.Context(), &client.Send{
		FromEmail: "alice@demo.example", To: []string{"bob@demo.example"}, Subject: "across", Text: large,
	})
	h.must(err)
	c := h.b.imap(1, nil)
	servertest.Eventually(h.T, func() string {
		in, err := c.Select("INBOX", nil).Wait()
		h.must(err)
		if in.NumMessages == 0 {
			return "bob has nothing"
		}
		return ""
	})
	body := &imap.FetchItemBodySection{Peek: true}
	all, err := c.Fetch(imap.SeqSetNum(1), &imap.FetchOptions{Envelope: true, BodySection: []*imap.FetchItemBodySection{body}}).Collect()
	h.must(err)
	if len(all) != 1 || all[0].Envelope.Subject != "across" || "<"+all[0].Envelope.MessageID+">" != m.MessageID {
		h.Fatalf("%d messages, %+v; want %s", len(all), all[0].Envelope, m.MessageID)
	}
	if got := string(all[0].FindBodySection(body)); strings.Count(got, "0123456789abcdef") != 10_000 {
		h.Errorf("the text that was read has %d octets", len(got))
	}
	servertest.Eventually(h.T, func() string {
		shown, err := h.b.Client().GetMessage(h.Context(), m.ID)
		h.must(err)
		if shown.Status != client.Delivered {
			return fmt.Sprintf("by node b it is %s", shown.Status)
		}
		return ""
	})
}

// listen opens an IDLE session on alice's INBOX. The channel receives the number of messages of
// each notification.
func (s *service) listen(i int) <-chan uint32 {
	s.t.Helper()
	exists := make(chan uint32, 1000)
	c := s.imap(i, &imapclient.Options{UnilateralDataHandler: &imapclient.UnilateralDataHandler{
		Mailbox: func(d *imapclient.UnilateralDataMailbox) {
			if d.NumMessages != nil {
				exists <- *d.NumMessages
			}
		},
	}})
	if _, err := c.Select("INBOX", nil).Wait(); err != nil {
		s.t.Fatal(err)
	}
	idle, err := c.Idle()
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = idle.Close() })
	return exists
}

// idleAcrossNodes files a message on one node that a session on the other waits for.
func (h *fixture) idleAcrossNodes() {
	h.Helper()
	heard := h.b.listen(1)
	for _, file := range []func(){
		func() { h.send(h.a, "idle-api", "bob@demo.example") },
		func() { h.add(h.a, 1, "idle-append") },
		func() { h.receive(h.a, "bob@demo.example", "idle-smtp") },
	} {
		file()
		next(h, heard)
	}
}

// add appends a message to INBOX over a node's IMAP and returns its UID.
func (h *fixture) add(s *service, box int, subject string) imap.UID {
	h.Helper()
	c := s.imap(box, nil)
	uid, err := appendTo(c, subject)
	h.must(err)
	h.must(c.Logout().Wait())
	return uid
}

func appendTo(c *imapclient.Client, subject string) (imap.UID, error) {
	what := text(subject)
	a := c.Append("INBOX", int64(len(what)), nil)
	if _, err := io.WriteString(a, what); err != nil {
		return 0, err
	}
	if err := a.Close(); err != nil {
		return 0, err
	}
	d, err := a.Wait()
	if err != nil {
		return 0, err
	}
	return d.UID, nil
}

// receive sends a message to a node's MX.
func (h *fixture) receive(s *service, to, subject string) {
	h.Helper()
	_, c, err := s.dial("smtp")
	h.must(err)
	defer c.Close() //nolint:errcheck // it was told QUIT
	h.must(c.Mail("someone@elsewhere.example.net"))
	h.must(c.Rcpt(to))
	w, err := c.Data()
	h.must(err)
	_, err = io.WriteString(w, text(subject))
	h.must(err)
	h.must(w.Close())
	h.must(c.Quit())
}

// row is a message as IMAP shows it.
type row struct {
	uid     imap.UID
	subject string
	flags   string
}

func (h *fixture) rows(s *service, box int) []row {
	h.Helper()
	c := s.imap(box, nil)
	in, err := c.Select("INBOX", &imap.SelectOptions{ReadOnly: true}).Wait()
	h.must(err)
	if in.NumMessages == 0 {
		return nil
	}
	all, err := c.Fetch(imap.UIDSet{{Start: 1, Stop: 0}}, &imap.FetchOptions{UID: true, Envelope: true, Flags: true}).Collect()
	h.must(err)
	var rows []row
	for _, m := range all {
		slices.Sort(m.Flags)
		rows = append(rows, row{m.UID, m.Envelope.Subject, fmt.Sprint(m.Flags)})
	}
	h.must(c.Logout().Wait())
	return rows
}

// oneMailbox writes to alice's INBOX through both nodes at once, by the API, the MX and APPEND.
func (h *fixture) oneMailbox() {
	h.Helper()
	each := servertest.SoakSize(15, 500)
	var all sync.WaitGroup
	var mu sync.Mutex
	var sent []string
	appended := map[string]imap.UID{}
	note := func(subject string, uid imap.UID) {
		mu.Lock()
		defer mu.Unlock()
		sent = append(sent, subject)
		if uid != 0 {
			appended[subject] = uid
		}
	}
	watchA, watchB := h.a.listen(0), h.b.listen(0)
	for name, s := range map[string]*service{"a": h.a, "b": h.b} {
		for n := range 2 {
			api, c := s.Client(), s.imap(0, nil)
			all.Go(func() {
				for i := range each {
					subject := fmt.Sprintf("api-%s-%d-%d", name, n, i)
					_, err := api.Send(h.Context(), &client.Send{FromEmail: "bob@demo.example", To: []string{"alice@demo.example"}, Subject: subject, Text: "x"})
					if err != nil {
						h.Errorf("%s: %v", subject, err)
						return
					}
					note(subject, 0)
				}
			})
			all.Go(func() {
				last := imap.UID(0)
				for i := range each {
					subject := fmt.Sprintf("append-%s-%d-%d", name, n, i)
					uid, err := appendTo(c, subject)
					if err != nil || uid <= last {
						h.Errorf("%s: UID %d after %d, %v", subject, uid, last, err)
						return
					}
					last = uid
					note(subject, uid)
				}
			})
		}
	}
	all.Wait()
	total := uint32(len(sent))
	for _, watch := range []<-chan uint32{watchA, watchB} {
		for last := uint32(0); last < total; {
			n := next(h, watch)
			if n < last {
				h.Errorf("a session that idles heard of %d messages after %d", n, last)
			}
			last = n
		}
	}
	rows := h.rows(h.a, 0)
	if other := h.rows(h.b, 0); !slices.Equal(rows, other) {
		h.Errorf("node a shows %d messages, node b %d, or others:\n%v\n%v", len(rows), len(other), rows, other)
	}
	var got []string
	for i, r := range rows {
		if i > 0 && r.uid <= rows[i-1].uid {
			h.Errorf("UID %d after %d", r.uid, rows[i-1].uid)
		}
		if uid, ok := appended[r.subject]; ok && uid != r.uid {
			h.Errorf("%s was told to have UID %d and has %d", r.subject, uid, r.uid)
		}
		got = append(got, r.subject)
	}
	slices.Sort(got)
	slices.Sort(sent)
	if !slices.Equal(got, sent) {
		h.Errorf("of %d messages there are %d: %v, want %v", len(sent), len(got), got, sent)
	}
	h.flagsFromBothSides(rows)
}

// flagsFromBothSides changes and expunges messages through both nodes at once.
func (h *fixture) flagsFromBothSides(rows []row) {
	h.Helper()
	var all sync.WaitGroup
	for n, s := range []*service{h.a, h.b} {
		c := s.imap(0, nil)
		_, err := c.Select("INBOX", nil).Wait()
		h.must(err)
		all.Go(func() {
			for i, r := range rows {
				flag := []imap.Flag{"$A", "$B"}[n]
				if i%4 == n {
					flag = imap.FlagDeleted
				}
				_, err := c.Store(imap.UIDSetNum(r.uid), &imap.StoreFlags{Op: imap.StoreFlagsAdd, Flags: []imap.Flag{flag}, Silent: true}, nil).Collect()
				if err == nil && i%16 == 15 {
					_, err = c.Expunge().Collect()
				}
				if err != nil {
					h.Errorf("message %d: %v", r.uid, err)
					return
				}
			}
			if _, err := c.Expunge().Collect(); err != nil {
				h.Error(err)
			}
		})
	}
	all.Wait()
	left := h.rows(h.a, 0)
	if other := h.rows(h.b, 0); !slices.Equal(left, other) {
		h.Errorf("afterwards node a shows\n%v\nand node b\n%v", left, other)
	}
	var want []row
	for i, r := range rows {
		if i%4 >= 2 {
			want = append(want, row{r.uid, r.subject, "[$A $B]"})
		}
	}
	if !slices.Equal(left, want) {
		h.Errorf("afterwards there are\n%v\nwant\n%v", left, want)
	}
}

// revokedAcrossNodes changes bob's password on node b. He has sessions on node a, which has cached
// his login.
func (h *fixture) revokedAcrossNodes() {
	h.Helper()
	box := h.a.Dev.Mailboxes[1]
	idle := h.a.imap(1, nil)
	_, err := idle.Select("INBOX", nil).Wait()
	h.must(err)
	idling, err := idle.Idle()
	h.must(err)
	_, smtp, err := h.a.dialAs("submission", box.Address, box.Password)
	h.must(err)
	defer smtp.Close() //nolint:errcheck // the service ended it
	other := h.a.imap(0, nil)

	fresh, err := h.b.Client().SetMailboxPassword(h.Context(), box.ID.String(), "")
	h.must(err)
	// The cached old password is no longer valid.
	if err := h.a.dialIMAP(nil).Login(box.Address, box.Password).Wait(); err == nil {
		h.Error("the old password still opens a session at the other node")
	}
	if err := h.a.dialIMAP(nil).Login(box.Address, fresh).Wait(); err != nil {
		h.Errorf("the new password: %v", err)
	}
	if err := idling.Wait(); err == nil {
		h.Error("IDLE ended as if it had been told to")
	}
	next(h, idle.Closed())
	servertest.Eventually(h.T, func() string {
		if err := smtp.Mail(box.Address); err != nil {
			if !answered(err) || !strings.HasPrefix(err.Error(), "421") {
				h.Errorf("submission: %v", err)
			}
			return ""
		}
		h.must(smtp.Reset())
		return "the session for submission goes on"
	})
	if err := other.Noop().Wait(); err != nil {
		h.Errorf("the session of another mailbox: %v", err)
	}
}

// refused starts processes that can't be nodes of this service.
func (h *fixture) refused() {
	h.Helper()
	named, keyed := h.node("a"), h.node("c")
	keyed.ServeFlags = append(keyed.ServeFlags, "--secret-key", strings.Repeat("0f", 32))
	for want, s := range map[string]*service{
		`Another process runs as node "a". Give this one another name (--node)`:  named,
		`This database is used with another secret key. Give all nodes the same`: keyed,
	} {
		if err := s.TryStart(); err == nil || !strings.Contains(err.Error(), "mailstead: ") || !strings.Contains(err.Error(), want) {
			h.Errorf("a process that is to be refused: %v, want %s", err, want)
		}
	}
}
