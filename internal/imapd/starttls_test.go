// SPDX-License-Identifier: Apache-2.0

package imapd_test

import (
	"bufio"
	"crypto/tls"
	"net"
	"strings"
	"testing"
)

func (c *client) startTLS() {
	c.Helper()
	c.ok("STARTTLS")
	nc := tls.Client(c.nc, c.tlsConfig())
	c.must(nc.HandshakeContext(c.Context()))
	c.nc, c.br = nc, bufio.NewReader(nc)
}

func TestStartTLS(t *testing.T) {
	each(t, func(h *fixture) {
		c := h.dial()
		c.startTLS()
		c.ok("CAPABILITY")
		c.got("…AUTH=PLAIN")
		c.bad("STARTTLS")
		c.ok("LOGIN " + alice + " " + password)
		c.bad("STARTTLS")
		c.ok("SELECT INBOX")
	})
}

// tickets counts the session tickets that a server offers.
type tickets struct{ got int }

func (*tickets) Get(string) (*tls.ClientSessionState, bool) { return nil, false }
func (k *tickets) Put(_ string, _ *tls.ClientSessionState)  { k.got++ }

func TestStartTLSWithoutTicket(t *testing.T) {
	each(t, func(h *fixture) {
		for listener, want := range map[string]int{h.plain: 0, h.secure: 1} {
			k := &tickets{}
			config := h.tlsConfig()
			config.ClientSessionCache = k
			nc, err := net.Dial("tcp", listener)
			h.must(err)
			var c *client
			if listener == h.plain {
				c = h.greeted(nc)
				c.ok("STARTTLS")
				nc = tls.Client(nc, config)
				c.nc, c.br = nc, bufio.NewReader(nc)
			} else {
				c = h.greeted(tls.Client(nc, config))
			}
			c.ok("NOOP")
			if k.got != want {
				t.Errorf("%d tickets, not %d", k.got, want)
			}
		}
	})
}

// Data in the same packet as STARTTLS may be injected by an attacker.
func TestStartTLSInjection(t *testing.T) {
	each(t, func(h *fixture) {
		c := h.dial()
		c.send("a STARTTLS\r\nb LOGIN " + alice + " " + password + "\r\n")
		if got := c.answer(); !strings.HasPrefix(got, "* BYE ") {
			t.Fatalf("got %q", got)
		}
		c.closed()
	})
}

func TestNotTLS(t *testing.T) {
	each(t, func(h *fixture) {
		c := h.dial()
		c.ok("STARTTLS")
		c.send("a CAPABILITY, in the clear\r\n")
		for {
			if _, err := c.br.ReadByte(); err != nil {
				break // after an alert
			}
		}
	})
}
