// SPDX-License-Identifier: Apache-2.0

package relay_test

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/queue"
)

func TestWhatTheHostLacks(t *testing.T) {
	cases := []struct {
		name string
		to   string
		edit func(*queue.OutboundMessage)
		want string
	}{
		{"SMTPUTF8", "bob@d.test", func(m *queue.OutboundMessage) { m.UTF8 = true }, "bounced 5.6.7"},
		{"SMTPUTF8 for the address", "bøb@d.test", nil, "bounced 5.6.7"},
		{"SIZE", "bob@d.test", func(m *queue.OutboundMessage) { m.Size = 1001 }, "bounced 5.3.4"},
		{"REQUIRETLS", "bob@d.test", func(m *queue.OutboundMessage) { m.RequireTLS = true }, "bounced 5.7.10"},
	}
	s := &sink{ext: []string{"PIPELINING", "SIZE 1000"}}
	h := oneHost(t, s)
	for _, c := range cases {
		id := h.accept(h.newMail(c.edit), c.to)
		if got := h.states(id); got != c.want {
			t.Errorf("%s: states %s, want %s", c.name, got, c.want)
		}
	}
	if got := h.states(h.send("bob@d.test")); got != "delivered 2.0.0" || s.connections() != 2 { // one is for REQUIRETLS
		t.Errorf("after that: %s, %d connections", got, s.connections())
	}
}

// A message that the first host can't accept goes to another that can; all others stay with the
// first. It bounces if no other host accepts it, whether they are down or lack the extension too.
func TestAnotherHostHasIt(t *testing.T) {
	l := bind(t, "127.0.0.1", "127.0.0.2", "127.0.0.3")
	small, large := start(t, l[0], &sink{ext: []string{"PIPELINING", "SIZE 1000"}}), start(t, l[1], &sink{})
	_ = l[2].Close()
	h := newFixture(t, small.addr.Port(), nil, "mx1.test. A 127.0.0.1", "mx2.test. A 127.0.0.2", "mx3.test. A 127.0.0.3",
		"two.test. MX 10 mx1.test.", "two.test. MX 20 mx2.test.", "three.test. MX 5 mx3.test.", "three.test. MX 10 mx1.test.", "three.test. MX 20 mx2.test.",
		"down.test. MX 10 mx1.test.", "down.test. MX 20 mx3.test.")
	h.run()
	want := 0
	for _, c := range []struct {
		to    string
		edit  func(*queue.OutboundMessage)
		state string
	}{
		{"bob@two.test", func(m *queue.OutboundMessage) { m.UTF8 = true }, "delivered 2.0.0"},
		{"bøb@two.test", nil, "delivered 2.0.0"},
		{"bob@two.test", func(m *queue.OutboundMessage) { m.Size = 1001 }, "delivered 2.0.0"},
		{"bob@three.test", func(m *queue.OutboundMessage) { m.EightBit, m.OptionalTLS = true, true }, "delivered 2.0.0"},
		{"bob@down.test", func(m *queue.OutboundMessage) { m.UTF8 = true }, "bounced 5.6.7"},
		{"bob@down.test", func(m *queue.OutboundMessage) { m.Size = 1001 }, "bounced 5.3.4"},
	} {
		if c.state == "delivered 2.0.0" {
			want++
		}
		if a := h.attempt(h.accept(h.newMail(c.edit), c.to)); string(a.Outcome)+" "+a.Enhanced != c.state {
			t.Errorf("%s: %s %s, want %s\n%s", c.to, a.Outcome, a.Enhanced, c.state, a.Transcript)
		}
	}
	if got := h.states(h.send("bob@two.test")); got != "delivered 2.0.0" || len(small.mail()) != 1 || len(large.mail()) != want {
		t.Errorf("another is %s; the first has %d messages, the second %d", got, len(small.mail()), len(large.mail()))
	}
}

// A message that a host without 8BITMIME can't accept is re-encoded. If it can't be encoded, the
// report names the host. A host with 8BITMIME gets the message unchanged.
func TestEncodedForTheHost(t *testing.T) {
	const seven = "Subject: hi\r\n\r\nGr=C3=BC=C3=9Fe\r\n"
	encoded := func(err error) func(*queue.OutboundMessage) {
		return func(m *queue.OutboundMessage) {
			m.EightBit = true
			m.SevenBit = func(context.Context) (*queue.OutboundMessage, error) {
				other := *m
				other.EightBit, other.SevenBit, other.Size, other.Head = false, nil, int64(len(seven)), nil
				other.Body = func(context.Context) (io.ReadCloser, error) { return io.NopCloser(strings.NewReader(seven)), nil }
				return &other, err
			}
		}
	}
	for name, c := range map[string]struct {
		ext         []string
		edit        func(*queue.OutboundMessage)
		want, reply string
		data        string // that the host has
	}{
		"offered":        {[]string{"PIPELINING", "8BITMIME"}, encoded(nil), "delivered 2.0.0", "taken", head + text},
		"lacking":        {[]string{"PIPELINING"}, encoded(nil), "delivered 2.0.0", "taken", seven},
		"no PIPELINING":  {[]string{"SIZE"}, encoded(nil), "delivered 2.0.0", "taken", seven},
		"too large then": {[]string{"SIZE 20"}, encoded(nil), "bounced 5.3.4", "and mx.d.test takes 20", ""},
		"signed":         {[]string{"PIPELINING"}, func(m *queue.OutboundMessage) { m.EightBit = true }, "bounced 5.6.3", "which mx.d.test does not offer; it can't be encoded for that host without breaking a signature in it", ""},
		"can't be":       {[]string{"PIPELINING"}, encoded(fault.New(fault.Denied, "needs_8bit", "no")), "bounced 5.6.3", "without breaking a signature", ""},
		"not now":        {[]string{"PIPELINING"}, encoded(errors.New("the disk is slow")), "deferred 4.3.0", "could not be re-encoded", ""},
	} {
		t.Run(name, func(t *testing.T) {
			s := &sink{ext: c.ext}
			h := oneHost(t, s)
			id := h.accept(h.newMail(c.edit), "bob@d.test", "ann@d.test")
			if got := h.states(id); got != c.want+", "+c.want {
				t.Errorf("states %s, want %s", got, c.want)
			}
			if a := h.attempt(id); !strings.Contains(a.Reply, c.reply) {
				t.Errorf("the reply is %q", a.Reply)
			}
			data := ""
			for _, m := range s.mail() {
				data += m.data
			}
			if data != c.data {
				t.Errorf("the host has\n%s", data)
			}
			// The connection is still usable for the next message.
			if got := h.states(h.send("bob@d.test")); c.ext[0] != "SIZE 20" && got != "delivered 2.0.0" || s.connections() != 1 {
				t.Errorf("after that: %s, %d connections", got, s.connections())
			}
		})
	}
}
