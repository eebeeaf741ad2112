// SPDX-License-Identifier: Apache-2.0

package crash

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/smtp"
	"net/textproto"
	"strings"
	"sync"
	"time"

	"github.com/mailstead/mailstead/internal/server/servertest"
)

// mail is a message offered to the service, identified by its one-word subject.
type mail struct {
	subject  string
	listener string   // api, smtp or submission
	to       []string // local mailboxes
	outside  bool     // it also goes to an outside recipient
	size     int      // of the text
	acked    bool     // 202 or 250 was received
	id       string   // API id, if it was received
	accepted time.Time
}

// ledger records the messages offered to the service, and its responses.
type ledger struct {
	mu      sync.Mutex
	mails   []*mail
	acks    int
	onAck   chan struct{} // one value per acknowledgement, unless full
	refused []refusal
}

func newLedger() *ledger { return &ledger{onAck: make(chan struct{}, 1)} }

// refusal is a response other than acceptance.
type refusal struct {
	listener string
	status   int
	text     string
}

func (l *ledger) offer(m *mail) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mails = append(l.mails, m)
}

func (l *ledger) ack(m *mail, id string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	m.acked, m.id, m.accepted = true, id, time.Now()
	l.acks++
	select {
	case l.onAck <- struct{}{}:
	default:
	}
}

func (l *ledger) refuse(listener string, status int, text string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.refused = append(l.refused, refusal{listener, status, text})
}

func (l *ledger) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.acks
}

// loader is the load of one connection.
type loader struct {
	s     *service
	l     *ledger
	name  string
	rand  *rand.Rand
	large int // every large-th message is large; 0: none
	n     int
}

// next generates a message.
func (d *loader) next(listener string) *mail {
	d.n++
	m := &mail{subject: fmt.Sprintf("%s-%d", d.name, d.n), listener: listener, size: 100 + d.rand.IntN(8<<10)}
	if d.large > 0 && d.n%d.large == 0 {
		m.size = 100<<10 + d.rand.IntN(100<<10) // stored in a file
	}
	alice, bob := d.s.Dev.Mailboxes[0].Address, d.s.Dev.Mailboxes[1].Address
	switch d.rand.IntN(4) {
	case 0:
		m.to = []string{alice}
	case 1, 2:
		m.to = []string{bob}
	default:
		m.to = []string{alice, bob}
	}
	m.outside = listener != "smtp" && d.rand.IntN(5) == 0
	return m
}

func (m *mail) recipients() []string {
	if m.outside {
		return append([]string{m.subject + "@elsewhere.example.net"}, m.to...)
	}
	return m.to
}

// text returns the message's text: of the wanted size, and hard to compress.
func (m *mail) text(r *rand.Rand) string {
	var b strings.Builder
	fmt.Fprintf(&b, "This is %s.\r\n", m.subject)
	for b.Len() < m.size {
		fmt.Fprintf(&b, "%016x%016x%016x\r\n", r.Uint64(), r.Uint64(), r.Uint64())
	}
	return b.String()
}

// api sends by the API until ctx ends or the service stops responding.
func (d *loader) api(ctx context.Context) {
	client := d.s.HTTP()
	client.Timeout = servertest.Timeout
	defer client.CloseIdleConnections()
	for ctx.Err() == nil {
		m := d.next("api")
		body, err := json.Marshal(map[string]any{
			"from_email": d.s.Dev.Mailboxes[0].Address, "to": m.recipients(), "subject": m.subject, "text": m.text(d.rand),
		})
		if err != nil {
			panic(err) // strings
		}
		d.l.offer(m)
		r, err := http.NewRequest(http.MethodPost, d.s.Dev.BaseURL+"/api/v1/outbound/send", bytes.NewReader(body))
		if err != nil {
			panic(err) // constant
		}
		r.Header.Set("Authorization", "Bearer "+d.s.Dev.APIKey)
		r.Header.Set("Content-Type", "application/json")
		resp, err := client.Do(r)
		if err != nil {
			return
		}
		// The status alone is the acknowledgement, even if the rest gets lost.
		text, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if resp.StatusCode != http.StatusAccepted {
			d.l.refuse("api", resp.StatusCode, resp.Header.Get("Content-Type")+" "+string(text))
		} else {
			var answer struct{ ID string }
			_ = json.Unmarshal(text, &answer)
			d.l.ack(m, answer.ID)
		}
		if err != nil {
			return
		}
	}
}

// smtp sends to the MX, or by submission as alice, until ctx ends or the service stops responding.
// Now and then it opens a new connection.
func (d *loader) smtp(ctx context.Context, listener string) {
	for ctx.Err() == nil {
		_, c, err := d.s.dial(listener)
		if err != nil {
			if answered(err) {
				d.refused(listener, err)
				continue
			}
			return
		}
		for range 20 {
			if ctx.Err() != nil {
				break
			}
			m := d.next(listener)
			d.l.offer(m)
			err := d.send(c, m)
			switch {
			case err == nil:
				d.l.ack(m, "")
			case answered(err):
				d.refused(listener, err)
				err = c.Reset()
			}
			if err != nil {
				break
			}
		}
		_ = c.Close()
	}
}

func answered(err error) bool {
	var said *textproto.Error
	return errors.As(err, &said)
}

func (d *loader) refused(listener string, err error) {
	var said *textproto.Error
	errors.As(err, &said)
	d.l.refuse(listener, said.Code, said.Msg)
}

// dial opens a session with a listener; for submission, as alice.
func (s *service) dial(listener string) (net.Conn, *smtp.Client, error) {
	return s.dialAs(listener, s.Dev.Mailboxes[0].Address, s.Dev.Mailboxes[0].Password)
}

func (s *service) dialAs(listener, user, password string) (net.Conn, *smtp.Client, error) {
	conn, err := net.Dial("tcp", s.Addr(listener))
	if err != nil {
		return nil, nil, err
	}
	_ = conn.SetDeadline(time.Now().Add(servertest.Timeout))
	c, err := smtp.NewClient(conn, "localhost")
	if err != nil {
		return nil, nil, errors.Join(err, conn.Close())
	}
	if listener == "submission" {
		err = c.StartTLS(s.TLS())
		if err == nil {
			err = c.Auth(smtp.PlainAuth("", user, password, "localhost"))
		}
	}
	if err != nil {
		return nil, nil, errors.Join(err, c.Close())
	}
	return conn, c, nil
}

func (d *loader) send(c *smtp.Client, m *mail) error {
	from := d.s.Dev.Mailboxes[0].Address
	if m.listener == "smtp" {
		from = "someone@elsewhere.example.net"
	}
	if err := c.Mail(from); err != nil {
		return err
	}
	for _, to := range m.recipients() {
		if err := c.Rcpt(to); err != nil {
			return err
		}
	}
	w, err := c.Data()
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(w, "From: <%s>\r\nTo: <%s>\r\nSubject: %s\r\nMessage-ID: <%s@load.example.net>\r\nDate: %s\r\n\r\n%s",
		from, m.to[0], m.subject, m.subject, time.Now().Format(time.RFC1123Z), m.text(d.rand))
	if err != nil {
		return err
	}
	return w.Close()
}

// load starts connections to every listener. wait returns when all have ended.
func (s *service) load(ctx context.Context, l *ledger, name string, seed uint64, large int) (wait func()) {
	var all sync.WaitGroup
	for i := range 7 {
		d := &loader{s: s, l: l, name: fmt.Sprintf("%s-%d", name, i), rand: rand.New(rand.NewPCG(seed, uint64(i))), large: large}
		switch {
		case i < 2:
			all.Go(func() { d.api(ctx) })
		case i < 5:
			all.Go(func() { d.smtp(ctx, "smtp") })
		default:
			all.Go(func() { d.smtp(ctx, "submission") })
		}
	}
	return all.Wait
}
