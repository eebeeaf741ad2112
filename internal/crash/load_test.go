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

// letter is a message that was offered to the service. Its subject, of one
// word, tells it from all others.
type letter struct {
	subject  string
	door     string   // api, smtp or submission
	to       []string // the mailboxes here
	outside  bool     // it also goes to a recipient elsewhere
	size     int      // of the text
	acked    bool     // 202 or 250 came
	id       string   // what the API called it, if that was heard
	accepted time.Time
}

// ledger is what was offered to the service, and what it said.
type ledger struct {
	mu      sync.Mutex
	letters []*letter
	acks    int
	onAck   chan struct{} // one for each acknowledgement, as far as there is room
	refused []refusal
}

func newLedger() *ledger { return &ledger{onAck: make(chan struct{}, 1)} }

// refusal is an answer other than yes.
type refusal struct {
	door   string
	status int
	text   string
}

func (l *ledger) offer(m *letter) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.letters = append(l.letters, m)
}

func (l *ledger) ack(m *letter, id string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	m.acked, m.id, m.accepted = true, id, time.Now()
	l.acks++
	select {
	case l.onAck <- struct{}{}:
	default:
	}
}

func (l *ledger) refuse(door string, status int, text string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.refused = append(l.refused, refusal{door, status, text})
}

func (l *ledger) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.acks
}

// loader is one connection's worth of load.
type loader struct {
	s     *service
	l     *ledger
	name  string
	rand  *rand.Rand
	large int // every so many messages is a large one; 0: none is
	n     int
}

// next makes up a message.
func (d *loader) next(door string) *letter {
	d.n++
	m := &letter{subject: fmt.Sprintf("%s-%d", d.name, d.n), door: door, size: 100 + d.rand.IntN(8<<10)}
	if d.large > 0 && d.n%d.large == 0 {
		m.size = 100<<10 + d.rand.IntN(100<<10) // its bytes go to a file
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
	m.outside = door != "smtp" && d.rand.IntN(5) == 0
	return m
}

func (m *letter) recipients() []string {
	if m.outside {
		return append([]string{m.subject + "@elsewhere.example.net"}, m.to...)
	}
	return m.to
}

// text is what the message says: of the size wanted, and not easy to squeeze.
func (m *letter) text(r *rand.Rand) string {
	var b strings.Builder
	fmt.Fprintf(&b, "This is %s.\r\n", m.subject)
	for b.Len() < m.size {
		fmt.Fprintf(&b, "%016x%016x%016x\r\n", r.Uint64(), r.Uint64(), r.Uint64())
	}
	return b.String()
}

// api sends by API until ctx ends or the service does not answer any more.
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
		// The status alone is the promise, even if the rest gets lost.
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

// smtp sends to the MX, or by submission as alice, until ctx ends or the
// service does not answer any more. Now and then it begins a new connection.
func (d *loader) smtp(ctx context.Context, door string) {
	for ctx.Err() == nil {
		_, c, err := d.s.dial(door)
		if err != nil {
			if answered(err) {
				d.refused(door, err)
				continue
			}
			return
		}
		for range 20 {
			if ctx.Err() != nil {
				break
			}
			m := d.next(door)
			d.l.offer(m)
			err := d.send(c, m)
			switch {
			case err == nil:
				d.l.ack(m, "")
			case answered(err):
				d.refused(door, err)
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

func (d *loader) refused(door string, err error) {
	var said *textproto.Error
	errors.As(err, &said)
	d.l.refuse(door, said.Code, said.Msg)
}

// dial opens a session at a door; for submission, as alice.
func (s *service) dial(door string) (net.Conn, *smtp.Client, error) {
	return s.dialAs(door, s.Dev.Mailboxes[0].Address, s.Dev.Mailboxes[0].Password)
}

func (s *service) dialAs(door, user, password string) (net.Conn, *smtp.Client, error) {
	conn, err := net.Dial("tcp", s.Addr(door))
	if err != nil {
		return nil, nil, err
	}
	_ = conn.SetDeadline(time.Now().Add(servertest.Timeout))
	c, err := smtp.NewClient(conn, "localhost")
	if err != nil {
		return nil, nil, errors.Join(err, conn.Close())
	}
	if door == "submission" {
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

func (d *loader) send(c *smtp.Client, m *letter) error {
	from := d.s.Dev.Mailboxes[0].Address
	if m.door == "smtp" {
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

// load starts connections at every door. wait returns when all have ended.
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
