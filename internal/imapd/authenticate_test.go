// SPDX-License-Identifier: Apache-2.0

package imapd_test

import (
	"encoding/base64"
	"testing"
)

func plain(as, user, password string) string {
	return base64.StdEncoding.EncodeToString([]byte(as + "\x00" + user + "\x00" + password))
}

func TestAuthenticate(t *testing.T) {
	each(t, func(h *fixture) {
		c := h.dial()
		c.no("AUTHENTICATE PLAIN "+plain("", alice, password), "PRIVACYREQUIRED]")

		c = h.dialTLS()
		c.no("AUTHENTICATE CRAM-MD5", "CANNOT]")
		c.bad("AUTHENTICATE PLAIN =")
		c.no("AUTHENTICATE PLAIN "+plain("bob@demo.test", alice, password), "AUTHORIZATIONFAILED]")

		c = h.dialTLS()
		tag := c.begin("AUTHENTICATE PLAIN")
		c.continued("+ ")
		c.send("*\r\n")
		c.finish(tag)
		if !matches("BAD …", c.tagged) {
			t.Fatalf("cancelled: %q", c.tagged)
		}
		tag = c.begin("AUTHENTICATE PLAIN")
		c.continued("+ ")
		c.send("no base64!\r\n")
		c.finish(tag)
		if !matches("BAD …", c.tagged) {
			t.Fatalf("not base64: %q", c.tagged)
		}
		tag = c.begin("AUTHENTICATE PLAIN")
		c.continued("+ ")
		c.send(plain("", alice, password) + "\r\n")
		c.finish(tag)
		if !matches("OK [CAPABILITY …", c.tagged) {
			t.Fatalf("got %q", c.tagged)
		}

		c = h.dialTLS()
		c.ok("AUTHENTICATE PLAIN "+plain(alice, alice, password), "CAPABILITY ")
	})
}

// continued expects a continuation request.
func (c *client) continued(want string) {
	c.Helper()
	if got := c.answer(); !matches(want+"…", got) {
		c.Fatalf("got %q, want %q", got, want)
	}
}
