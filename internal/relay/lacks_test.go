// SPDX-License-Identifier: Apache-2.0

package relay_test

import (
	"testing"

	"github.com/mailstead/mailstead/internal/queue"
)

func TestWhatTheHostLacks(t *testing.T) {
	cases := []struct {
		name string
		to   string
		edit func(*queue.Mail)
		want string
	}{
		{"SMTPUTF8", "bob@d.test", func(m *queue.Mail) { m.UTF8 = true }, "bounced 5.6.7"},
		{"SMTPUTF8 for the address", "bøb@d.test", nil, "bounced 5.6.7"},
		{"SIZE", "bob@d.test", func(m *queue.Mail) { m.Size = 1001 }, "bounced 5.3.4"},
		{"REQUIRETLS", "bob@d.test", func(m *queue.Mail) { m.RequireTLS = true }, "bounced 5.7.10"},
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

// What the first host can't take goes to another that can, while all else stays with
// the first. It bounces if no other takes it, be they down or no better.
func TestAnotherHostHasIt(t *testing.T) {
	l := bind(t, "127.0.0.1", "127.0.0.2", "127.0.0.3")
	small, large := start(t, l[0], &sink{ext: []string{"PIPELINING", "SIZE 1000"}}), start(t, l[1], &sink{})
	_ = l[2].Close()
	h := newHouse(t, small.addr.Port(), nil, "mx1.test. A 127.0.0.1", "mx2.test. A 127.0.0.2", "mx3.test. A 127.0.0.3",
		"two.test. MX 10 mx1.test.", "two.test. MX 20 mx2.test.", "three.test. MX 5 mx3.test.", "three.test. MX 10 mx1.test.", "three.test. MX 20 mx2.test.",
		"down.test. MX 10 mx1.test.", "down.test. MX 20 mx3.test.")
	h.run()
	want := 0
	for _, c := range []struct {
		to    string
		edit  func(*queue.Mail)
		state string
	}{
		{"bob@two.test", func(m *queue.Mail) { m.UTF8 = true }, "delivered 2.0.0"},
		{"bøb@two.test", nil, "delivered 2.0.0"},
		{"bob@two.test", func(m *queue.Mail) { m.Size = 1001 }, "delivered 2.0.0"},
		{"bob@three.test", func(m *queue.Mail) { m.EightBit, m.OptionalTLS = true, true }, "delivered 2.0.0"},
		{"bob@down.test", func(m *queue.Mail) { m.UTF8 = true }, "bounced 5.6.7"},
		{"bob@down.test", func(m *queue.Mail) { m.Size = 1001 }, "bounced 5.3.4"},
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
