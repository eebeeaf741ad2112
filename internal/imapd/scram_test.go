// SPDX-License-Identifier: Apache-2.0

package imapd_test

import (
	"encoding/base64"
	"strings"
	"testing"

	"github.com/xdg-go/scram"

	"github.com/mailstead/mailstead/internal/credential"
)

// offerScram enables SCRAM-SHA-256 with alice's password.
func (h *fixture) offerScram() {
	h.Helper()
	h.mailboxes.SCRAM = &credential.SCRAM{Hasher: h.mailboxes.Hasher, Key: []byte("a secret of this house"), Offered: true}
	pw := password
	_, err := h.mailboxes.SetPassword(h.Context(), h.box.Account, h.box.ID, &pw)
	h.must(err)
}

// speaker is the client side of SCRAM-SHA-256.
type speaker struct {
	*client
	*scram.ClientConversation
}

func (c *client) speaker(user, pw, as string) speaker {
	c.Helper()
	made, err := scram.SHA256.NewClient(user, pw, as)
	c.must(err)
	return speaker{c, made.NewConversation()}
}

// says returns the client's response to a challenge.
func (s speaker) says(challenge string) string {
	s.Helper()
	text, err := s.Step(challenge)
	s.must(err)
	return base64.StdEncoding.EncodeToString([]byte(text))
}

// hears reads a challenge.
func (s speaker) hears() string {
	s.Helper()
	line, asked := strings.CutPrefix(s.answer(), "+ ")
	text, err := base64.StdEncoding.DecodeString(line)
	if err != nil || !asked {
		s.Fatalf("got %q", line)
	}
	return string(text)
}

// authenticate runs the whole exchange, up to the tagged response.
func (s speaker) authenticate(initial bool) {
	s.Helper()
	var tag string
	if initial {
		tag = s.begin("AUTHENTICATE SCRAM-SHA-256 " + s.says(""))
	} else {
		tag = s.begin("AUTHENTICATE SCRAM-SHA-256")
		s.continued("+ ")
		s.send(s.says("") + "\r\n")
	}
	s.send(s.says(s.hears()) + "\r\n")
	a := s.answer()
	if line, ok := strings.CutPrefix(a, "+ "); ok {
		text, _ := base64.StdEncoding.DecodeString(line)
		if s.send(s.says(string(text)) + "\r\n"); !s.Valid() {
			s.Fatal("the server has not proved that it knows the password")
		}
		s.finish(tag)
		return
	}
	s.tagged = strings.TrimPrefix(a, tag+" ")
}

func (c *client) tells(want string) {
	c.Helper()
	if !matches(want, c.tagged) {
		c.Fatalf("got %q, want %q", c.tagged, want)
	}
}

func TestScram(t *testing.T) {
	each(t, func(h *fixture) {
		c := h.dialTLS()
		c.no("AUTHENTICATE SCRAM-SHA-256", "CANNOT]")
		c.ok("CAPABILITY")
		c.hasNot("…SCRAM…")
		h.offerScram()
		c = h.dial()
		c.ok("CAPABILITY")
		c.hasNot("…SCRAM…")
		c.no("AUTHENTICATE SCRAM-SHA-256", "PRIVACYREQUIRED]")

		c = h.dialTLS()
		c.has("* OK [CAPABILITY … AUTH=SCRAM-SHA-256 AUTH=PLAIN] …")
		c.speaker(alice, "wrong", "").authenticate(true)
		c.tells("NO [AUTHENTICATIONFAILED] …")
		c.speaker("nobody@demo.test", password, "").authenticate(false)
		c.tells("NO [AUTHENTICATIONFAILED] …")
		c.speaker("ALICE@demo.test", password, "").authenticate(false)
		c.tells("OK [CAPABILITY …UNAUTHENTICATE…")
		c.ok("SELECT INBOX")
		c.bad("AUTHENTICATE SCRAM-SHA-256")
		c.ok("UNAUTHENTICATE")
		c.tells("OK [CAPABILITY …AUTH=SCRAM-SHA-256 AUTH=PLAIN] …")
		s := c.speaker(alice, password, alice)
		tag := c.begin("AUTHENTICATE SCRAM-SHA-256 " + s.says(""))
		c.send(s.says(s.hears()) + "\r\n")
		s.says(s.hears())
		c.send("=\r\n") // an empty initial response
		c.finish(tag)
		c.tells("OK [CAPABILITY …")
		c.ok("SELECT INBOX")

		// The session ends when the password changes.
		changed := "Another-Passw0rd!"
		_, err := h.mailboxes.SetPassword(t.Context(), h.box.Account, h.box.ID, &changed)
		h.must(err)
		c.next("* BYE …")
		c.closed()

		h.mailboxes.SCRAM.Offered = false
		c = h.dialTLS()
		c.no("AUTHENTICATE SCRAM-SHA-256", "CANNOT]")
		c.ok("CAPABILITY")
		c.hasNot("…SCRAM…")
	})
}

// A failed exchange leaves a usable session.
func TestScramBroken(t *testing.T) {
	each(t, func(h *fixture) {
		h.offerScram()
		encode := func(text string) string { return base64.StdEncoding.EncodeToString([]byte(text)) }
		for _, first := range []string{"", "n,,n=alice", "p=tls-exporter,,n=" + alice + ",r=abc", "n,,n=a=2c,r=abc", "\x00" + alice + "\x00" + password, strings.Repeat("n", 20_000)} {
			c := h.dialTLS()
			if first = encode(first); first == "" {
				first = "="
			}
			c.bad("AUTHENTICATE SCRAM-SHA-256 " + first)
			c.speaker(alice, password, "").authenticate(true)
			c.tells("OK …")
		}
		for _, second := range []string{"", "*", "!", encode("c=biws,r=foreign,p=AAAA"), encode("x"), encode(strings.Repeat("c", 20_000))} {
			c := h.dialTLS()
			s := c.speaker(alice, password, "")
			tag := c.begin("AUTHENTICATE SCRAM-SHA-256 " + s.says(""))
			s.hears()
			c.send(second + "\r\n")
			c.finish(tag)
			c.tells("BAD …")
			c.speaker(alice, password, "").authenticate(false)
			c.tells("OK …")
		}
		for _, third := range []string{"*", encode("x"), "!"} {
			c := h.dialTLS()
			s := c.speaker(alice, password, "")
			tag := c.begin("AUTHENTICATE SCRAM-SHA-256 " + s.says(""))
			c.send(s.says(s.hears()) + "\r\n")
			s.says(s.hears())
			c.send(third + "\r\n")
			c.finish(tag)
			c.tells("BAD …")
			c.bad("SELECT INBOX")
			c.ok("LOGIN " + alice + " " + password)
		}

		c := h.dialTLS()
		tag := c.begin("AUTHENTICATE SCRAM-SHA-256 " + c.speaker(alice, password, "bob@demo.test").says(""))
		c.finish(tag)
		c.tells("NO [AUTHORIZATIONFAILED] …")
		// A client that supports channel binding, but was not offered it.
		made, err := scram.SHA256.NewClient(alice, password, "")
		h.must(err)
		speaker{c, made.NewConversationAdvertisingChannelBinding()}.authenticate(true)
		c.tells("OK …")
	})
}
