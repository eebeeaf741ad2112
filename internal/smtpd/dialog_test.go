// SPDX-License-Identifier: Apache-2.0

package smtpd_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/mailstead/mailstead/internal/address"
	"github.com/mailstead/mailstead/internal/cert"
	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/mailbox"
	"github.com/mailstead/mailstead/internal/message"
	"github.com/mailstead/mailstead/internal/ratelimit"
	"github.com/mailstead/mailstead/internal/smtpd"
)

// mails is a Backend that stores the accepted messages.
type mails struct {
	mu   sync.Mutex
	all  []receivedMail
	next db.ID
	// gate, if set, holds each message until it can be received from.
	gate    chan struct{}
	reached chan struct{} // signals that a message waits at the gate
}

type receivedMail struct {
	from     string
	to       []string
	envelope smtpd.Envelope
	wants    []smtpd.RcptOptions
	received message.ReceivedField
	body     string
	err      error
}

type taking struct {
	*mails
	receivedMail
}

func (l *mails) Begin(_ context.Context, e smtpd.Envelope) (smtpd.Transaction, error) {
	t := &taking{mails: l, receivedMail: receivedMail{envelope: e}}
	if e.From != nil {
		t.from = e.From.String()
	}
	return t, nil
}

func (t *taking) AddRecipient(_ context.Context, to address.Address, wants smtpd.RcptOptions) error {
	switch to.Local {
	case "nobody":
		return fault.New(fault.NotFound, mailbox.CodeNoMailbox, "There is no mailbox with this address.")
	case "full":
		return fault.New(fault.OverQuota, mailbox.CodeMailboxFull, "The mailbox is full.")
	case "fullong":
		return fault.New(fault.OverQuota, mailbox.CodeMailboxFullLong, "The mailbox has been full for a long time.")
	case "suspended":
		return fault.New(fault.Denied, mailbox.CodeMailboxSuspended, "This mailbox takes no mail.")
	case "broken":
		return errors.New("the disk is\r\n250 on fire")
	}
	if to.Domain != "demo.test" && to.Domain != "" {
		return fault.New(fault.NotFound, mailbox.CodeDomainNotHosted, "This domain's mail is not kept here.")
	}
	t.to, t.wants = append(t.to, to.String()), append(t.wants, wants)
	return nil
}

func (t *taking) ReceiveMessage(_ context.Context, r message.ReceivedField, body io.Reader) (db.ID, error) {
	b, err := io.ReadAll(body)
	if strings.Contains(string(b), "X-Refuse: yes") {
		err = fault.New(fault.Denied, "sender_not_allowed", "You may not say so.")
	}
	t.mu.Lock()
	t.receivedMail.body, t.receivedMail.received, t.receivedMail.err = string(b), r, err
	t.all = append(t.all, t.receivedMail)
	t.next++
	id := t.next
	t.mu.Unlock()
	if t.gate != nil {
		t.reached <- struct{}{}
		<-t.gate
	}
	return id, err
}

func (l *mails) taken() []receivedMail {
	l.mu.Lock()
	defer l.mu.Unlock()
	var good []receivedMail
	for _, one := range l.all {
		if one.err == nil {
			good = append(good, one)
		}
	}
	return good
}

// listener is a server on a real socket.
type listener struct {
	t *testing.T
	*smtpd.Server
	*mails
	addr  string
	roots *x509.CertPool
	ended chan error
}

var discard = slog.New(slog.DiscardHandler)

func open(t *testing.T, change func(*smtpd.Server)) *listener {
	t.Helper()
	dir := t.TempDir()
	source, err := cert.NewSelfSigned(cert.SelfSignedOptions{Dir: dir, Host: "mail.host.test"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(source.Close)
	pem, err := os.ReadFile(cert.CAFile(dir))
	if err != nil {
		t.Fatal(err)
	}
	d := &listener{t: t, mails: &mails{}, roots: x509.NewCertPool(), ended: make(chan error, 1)}
	d.roots.AppendCertsFromPEM(pem)
	d.Server = &smtpd.Server{Host: "mail.host.test", TLS: source.TLSConfig(), ConnLimiter: &ratelimit.ConnLimiter{}, Log: discard}
	d.Backend = d.mails
	if change != nil {
		change(d.Server)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	d.addr = ln.Addr().String()
	go func() { d.ended <- d.Serve(ln) }()
	t.Cleanup(func() {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		_ = d.Shutdown(ctx) // closes the connections that a test left open
		if err := <-d.ended; err != nil {
			t.Errorf("serving: %v", err)
		}
	})
	return d
}

// client is the other end of a session.
type client struct {
	t  testing.TB
	nc net.Conn
	br *bufio.Reader
	d  *listener
}

func (d *listener) dial() *client {
	d.t.Helper()
	nc, err := net.Dial("tcp", d.addr)
	if err != nil {
		d.t.Fatal(err)
	}
	_ = nc.SetDeadline(time.Now().Add(time.Minute)) // ends a hanging test
	d.t.Cleanup(func() { _ = nc.Close() })
	return &client{d.t, nc, bufio.NewReader(nc), d}
}

func (c *client) send(s string) {
	c.t.Helper()
	if _, err := io.WriteString(c.nc, s); err != nil {
		c.t.Fatal(err)
	}
}

func (c *client) line() string {
	c.t.Helper()
	line, err := c.br.ReadString('\n')
	if err != nil {
		c.t.Fatalf("reading a reply: %q, %v", line, err)
	}
	return strings.TrimSuffix(line, "\r\n")
}

// want reads a reply, of one or more lines, and compares its beginning.
func (c *client) want(begin string) {
	c.t.Helper()
	for {
		line := c.line()
		if len(line) > 3 && line[3] == '-' {
			continue
		}
		if !strings.HasPrefix(line, begin) {
			c.t.Fatalf("got %q, want %q", line, begin)
		}
		return
	}
}

func (c *client) say(line, begin string) {
	c.t.Helper()
	c.send(line + "\r\n")
	c.want(begin)
}

func (c *client) wantEOF() {
	c.t.Helper()
	if line, err := c.br.ReadString('\n'); err == nil || line != "" {
		c.t.Fatalf("the connection is open: %q", line)
	}
}

func (c *client) handshake() {
	c.t.Helper()
	t := tls.Client(c.nc, &tls.Config{RootCAs: c.d.roots, ServerName: "mail.host.test"})
	if err := t.Handshake(); err != nil {
		c.t.Fatal(err)
	}
	c.nc, c.br = t, bufio.NewReader(t)
}

// The dialogs in testdata say, line by line:
//
//	> a line that the client sends; lines without a reply between them are sent together
//	>> "octets to send as they are, in Go's syntax"
//	< a line that the server answers; an ellipsis at its end stands for anything
//	tls      the client begins TLS
//	closed   the server has closed the connection
//	= "from" "to,to" "body"     the one accepted message
//	# a comment
func TestDialogs(t *testing.T) {
	files, err := filepath.Glob("testdata/dialogs/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatal(len(files), err)
	}
	for _, name := range files {
		t.Run(strings.TrimSuffix(filepath.Base(name), ".txt"), func(t *testing.T) {
			text, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			d := open(t, func(s *smtpd.Server) { s.MaxSize, s.MaxRecipients = 100_000, 3 })
			play(t, d, string(text))
		})
	}
}

func play(t *testing.T, d *listener, script string) {
	c := d.dial()
	var pending strings.Builder
	flush := func() {
		if pending.Len() > 0 {
			c.send(pending.String())
			pending.Reset()
		}
	}
	seen := 0
	for i, line := range strings.Split(strings.TrimSpace(script), "\n") {
		op, arg, _ := strings.Cut(line, " ")
		switch op {
		case ">":
			pending.WriteString(arg + "\r\n")
			continue
		case ">>":
			raw, err := strconv.Unquote(arg)
			if err != nil {
				t.Fatalf("line %d: %v", i+1, err)
			}
			pending.WriteString(raw)
			continue
		}
		flush()
		switch op {
		case "<":
			got := c.line()
			begin, anything := strings.CutSuffix(arg, "…")
			if got != arg && (!anything || !strings.HasPrefix(got, begin)) {
				t.Fatalf("line %d: got  %s\nwant %s", i+1, got, arg)
			}
		case "tls":
			c.handshake()
		case "closed":
			c.wantEOF()
		case "=":
			all := d.taken()
			if len(all) != seen+1 {
				t.Fatalf("line %d: %d messages were taken, want %d", i+1, len(all), seen+1)
			}
			got := fmt.Sprintf("%q %q %q", all[seen].from, strings.Join(all[seen].to, ","), all[seen].body)
			if got != arg {
				t.Fatalf("line %d: took %s\nwant %s", i+1, got, arg)
			}
			seen++
		case "#", "":
		default:
			t.Fatalf("line %d is not understood", i+1)
		}
	}
	flush()
	if n := len(d.taken()); n != seen {
		t.Errorf("%d messages were taken, want %d", n, seen)
	}
}

func TestTooManyConnections(t *testing.T) {
	d := open(t, func(s *smtpd.Server) { s.ConnLimiter = &ratelimit.ConnLimiter{PerNetwork: 1} })
	first := d.dial()
	first.want("220 ")
	second := d.dial()
	second.want("421 4.7.0")
	second.wantEOF()
	first.say("QUIT", "221 ")
	first.wantEOF()
	friend := open(t, func(s *smtpd.Server) {
		s.ConnLimiter = &ratelimit.ConnLimiter{PerNetwork: 1, Exempt: netip.Addr.IsLoopback}
	})
	friend.dial().want("220 ")
	friend.dial().want("220 ")
}
