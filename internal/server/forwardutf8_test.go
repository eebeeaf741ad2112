// SPDX-License-Identifier: Apache-2.0

package server_test

import (
	"errors"
	"io"
	"net"
	"strings"
	"testing"

	"github.com/emersion/go-sasl"
	"github.com/emersion/go-smtp"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/db/dbtest"
	"github.com/mailstead/mailstead/internal/server"
	"github.com/mailstead/mailstead/internal/server/servertest"
)

// nextHop is a remote host that accepts all mail. took receives, for each message, whether it came
// with SMTPUTF8.
type nextHop struct{ took chan bool }

func (h *nextHop) NewSession(*smtp.Conn) (smtp.Session, error) { return &hop{to: h}, nil }

type hop struct {
	to   *nextHop
	utf8 bool
}

func (h *hop) Reset()                               {}
func (h *hop) Logout() error                        { return nil }
func (h *hop) Rcpt(string, *smtp.RcptOptions) error { return nil }
func (h *hop) Mail(_ string, o *smtp.MailOptions) error {
	h.utf8 = o.UTF8
	return nil
}

func (h *hop) Data(r io.Reader) error {
	_, err := io.Copy(io.Discard, r)
	h.to.took <- h.utf8
	return err
}

// startRelaying starts a service that sends outside mail through srv.
func startRelaying(t *testing.T, url string, srv *smtp.Server) *servertest.Server {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = srv.Serve(l)
	}()
	t.Cleanup(func() {
		_ = srv.Close()
		<-done
	})
	return newOutsider(t, servertest.Database(url), func(c *server.Config) { c.Relay = "smtp://" + l.Addr().String() }).s
}

// A message that came with SMTPUTF8 and has bytes above 127 in its header is forwarded with
// SMTPUTF8. If the host lacks it, the sender gets a report with SMTPUTF8. A message that came
// without it is forwarded unchanged.
func TestForwardNeedsUTF8(t *testing.T) {
	const raw = "From: Ann <ann@none.com>\r\nSubject: Grüße\r\n\r\nHi\r\n"
	for name, offered := range map[string]bool{"offered": true, "not offered": false} {
		t.Run(name, func(t *testing.T) {
			dbtest.EachURL(t, func(t *testing.T, url string) {
				there := &nextHop{make(chan bool, 10)}
				srv := smtp.NewServer(there)
				srv.Domain, srv.EnableSMTPUTF8 = "relay.test", offered
				s := startRelaying(t, url, srv)
				if _, err := clientOf(t, s).CreateAlias(t.Context(), "out@demo.test", away); err != nil {
					t.Fatal(err)
				}
				forwards(t, clientOf(t, s), s, 1, false, away)
				if err := mx(t, s, "ann@none.com", strings.ReplaceAll(raw, "Grüße", "Hi"), "out@demo.test"); err != nil {
					t.Fatal(err)
				}
				if <-there.took {
					t.Error("ASCII went with SMTPUTF8")
				}
				if err := plainly(s, "ann@none.com", raw, "out@demo.test"); err != nil {
					t.Fatal(err)
				}
				if <-there.took {
					t.Error("what came without SMTPUTF8 goes on with it")
				}
				long := raw + strings.Repeat("All work and no play makes Jack a dull boy.\r\n", 1000)
				for n, tt := range []struct{ to, text, kind string }{
					{"out@demo.test", raw, "message/global\r\nContent-Transfer-Encoding: 8bit\r\n"},
					{"bob@demo.test", raw, "message/global\r\nContent-Transfer-Encoding: 8bit\r\n"},
					{"out@demo.test", long, "message/global-headers\r\nContent-Transfer-Encoding: 8bit\r\n"},
					{"out@demo.test", strings.ReplaceAll(long, "ü", "\xfc"), "text/rfc822-headers\r\nContent-Transfer-Encoding: 8bit\r\n"},
				} {
					if err := mx(t, s, "ann@none.com", tt.text, tt.to); err != nil {
						t.Fatal(err)
					}
					if offered {
						if !<-there.took {
							t.Errorf("%s: it went without SMTPUTF8", tt.to)
						}
						continue
					}
					text := arrived(t, s, 0, uint32(n+1))
					if !strings.Contains(text, "\r\nStatus: 5.6.7\r\n") || !strings.Contains(text, "Content-Type: "+tt.kind) {
						t.Errorf("the postmaster is told\n%.3000s", text)
					}
				}
			})
		})
	}
}

// plainly is mx without the parameters that net/smtp adds.
func plainly(s *servertest.Server, from, msg, to string) error {
	c, err := smtp.Dial(s.Addr("smtp"))
	if err != nil {
		return err
	}
	defer c.Close() //nolint:errcheck // only a client
	return c.SendMail(from, []string{to}, strings.NewReader(msg))
}

var (
	demandsTLS = db.SQL(`SELECT COUNT(*) FROM outbound_message WHERE forwarded NOT IN (0, $1) AND require_tls = 'required'`)
	needsNoTLS = db.SQL(`SELECT COUNT(*) FROM outbound_message WHERE forwarded NOT IN (0, $1) AND require_tls = 'optional'`)
)

// A message that requires TLS (RFC 8689) is not forwarded in cleartext by an alias or a mailbox. A
// message that waives TLS is forwarded despite the target's policy.
func TestForwardRequiresTLS(t *testing.T) {
	servertest.Each(t, func(t *testing.T, s *servertest.Server) {
		c := clientOf(t, s)
		if _, err := c.CreateAlias(t.Context(), "out@demo.test", away); err != nil {
			t.Fatal(err)
		}
		forwards(t, c, s, 1, false, away)
		requiring(t, s, "From: alice@demo.test\r\nSubject: Hi\r\n\r\nHi\r\n", "out@demo.test", "bob@demo.test")
		wentOut(t, s, away, 2)
		if n := count(t, s, demandsTLS, 0); n != 2 {
			t.Errorf("%d of 2 went on with the demand", n)
		}
		const text = "TLS-Required: No\r\nFrom: alice@demo.test\r\nSubject: Hi\r\n\r\nHi\r\n"
		submitted(t, s, 0, text, "out@demo.test")
		if code := simulated(t, s, "p@away.example.net", "bob@demo.test", text, map[string]string{"spf": "pass"}); code != 250 {
			t.Fatal(code)
		}
		wentOut(t, s, away, 4)
		if n := count(t, s, needsNoTLS, 0); n != 2 {
			t.Errorf("%d of 2 went on without need of it", n)
		}
	})
}

// requiring submits a message with REQUIRETLS, as alice.
func requiring(t *testing.T, s *servertest.Server, msg string, to ...string) {
	t.Helper()
	nc, err := net.Dial("tcp", s.Addr("submission"))
	if err != nil {
		t.Fatal(err)
	}
	c, err := smtp.NewClientStartTLS(nc, s.TLS())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close() //nolint:errcheck // only a client
	own := s.Dev.Mailboxes[0]
	err = errors.Join(c.Auth(sasl.NewPlainClient("", own.Address, own.Password)), c.Mail(own.Address, &smtp.MailOptions{RequireTLS: true}))
	for _, one := range to {
		err = errors.Join(err, c.Rcpt(one, nil))
	}
	if err != nil {
		t.Fatal(err)
	}
	w, err := c.Data()
	if err != nil {
		t.Fatal(err)
	}
	_, err = io.WriteString(w, msg)
	if err := errors.Join(err, w.Close()); err != nil {
		t.Fatal(err)
	}
}
