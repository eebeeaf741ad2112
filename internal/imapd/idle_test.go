// SPDX-License-Identifier: Apache-2.0

package imapd_test

import "testing"

func (c *client) idle() string {
	c.Helper()
	tag := c.begin("IDLE")
	c.continued("+ ")
	return tag
}

// next expects the next answer.
func (c *client) next(want string) {
	c.Helper()
	if got := c.answer(); !matches(want, got) {
		c.Fatalf("got %q, want %q", got, want)
	}
}

func TestIdle(t *testing.T) {
	each(t, func(h *house) {
		a, b := h.selected("INBOX"), h.selected("INBOX")
		tag := a.idle()
		for n, subject := range []string{"one", "two"} {
			b.append("INBOX", "", note(subject))
			a.next([]string{"* 1 EXISTS", "* 2 EXISTS"}[n])
			a.next("* … RECENT")
		}
		b.ok(`STORE 2 +FLAGS (\Deleted)`)
		a.next(`* 2 FETCH (UID 2 FLAGS (\Deleted…))`)
		b.ok("EXPUNGE")
		a.next("* 2 EXPUNGE")
		a.send("DONE\r\n")
		a.finish(tag)
		if !matches("OK …", a.tagged) {
			t.Fatalf("got %q", a.tagged)
		}
		a.ok("NOOP")
		a.got()
	})
}

func TestIdleWithoutFolder(t *testing.T) {
	each(t, func(h *house) {
		c := h.login()
		tag := c.idle()
		c.send("NOOP\r\n")
		c.finish(tag)
		if !matches("BAD …", c.tagged) {
			t.Fatalf("got %q", c.tagged)
		}
		tag = c.idle()
		c.send("done\r\n")
		c.finish(tag)
		c.ok("NOOP")
	})
}
