// SPDX-License-Identifier: Apache-2.0

package imapd_test

import (
	"context"
	"crypto/tls"
	"net"
	"testing"
	"time"

	"github.com/mailstead/mailstead/internal/imapd"
	"github.com/mailstead/mailstead/internal/ratelimit"
)

func TestShutdown(t *testing.T) {
	each(t, func(h *fixture) {
		waiting, idling := h.login(), h.selected("INBOX")
		tag := idling.idle()
		// The current command is finished: this one waits for its literal.
		busy := h.login()
		m := note("last")
		busyTag := busy.begin("APPEND INBOX {" + itoa(len(m)) + "}")
		busy.continued("+ ")

		ended := make(chan error)
		go func() { ended <- h.server.Shutdown(context.Background()) }()
		waiting.next("* BYE …")
		waiting.closed()
		for a := idling.answer(); !matches("* BYE …", a); a = idling.answer() {
			if matches(tag+" …", a) {
				t.Errorf("got %q", a)
			}
		}
		idling.closed()
		busy.send(m + "\r\n")
		busy.finish(busyTag)
		if !matches("OK [APPENDUID …", busy.tagged) {
			t.Errorf("got %q", busy.tagged)
		}
		busy.next("* BYE …")
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if _, err := net.Dial("tcp", h.plain); err == nil {
			t.Error("the port is still open")
		}
	})
}

// Connections that don't finish in time are closed.
func TestShutdownForced(t *testing.T) {
	each(t, func(h *fixture) {
		c := h.login()
		c.begin("APPEND INBOX {10}")
		c.continued("+ ")
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		if err := h.server.Shutdown(ctx); err != context.Canceled {
			t.Errorf("got %v", err)
		}
		c.closed()
	})
}

func TestConnectionLimit(t *testing.T) {
	eachWith(t, func(o *imapd.Options) { o.ConnLimiter = &ratelimit.ConnLimiter{PerNetwork: 2} }, func(h *fixture) {
		a := h.dial()
		h.dialTLS()
		nc, err := net.Dial("tcp", h.plain)
		h.must(err)
		c := h.greeted(nc)
		c.got("* BYE [UNAVAILABLE] …")
		c.closed()
		if _, err := tls.Dial("tcp", h.secure, h.tlsConfig()); err == nil {
			t.Error("a connection over the limit is taken")
		}
		a.ok("LOGOUT")
		a.closed()
	})
}

func TestTimeouts(t *testing.T) {
	short := func(o *imapd.Options) { o.Timeouts = imapd.Timeouts{Login: 50 * time.Millisecond} }
	eachWith(t, short, func(h *fixture) {
		// A client that never logs in is disconnected, even in the middle of a line.
		for _, start := range []string{"", "a LOGI"} {
			c := h.dial()
			c.send(start)
			c.next("* BYE …")
			c.closed()
		}
	})
	short = func(o *imapd.Options) {
		o.Timeouts = imapd.Timeouts{Idle: 50 * time.Millisecond, Command: 50 * time.Millisecond}
	}
	eachWith(t, short, func(h *fixture) {
		c := h.login()
		c.next("* BYE …")
		c = h.login()
		c.idle()
		c.next("* BYE …")
		c = h.login()
		c.begin("APPEND INBOX {10}")
		c.continued("+ ")
		c.next("* BYE …")
		c.closed()
	})
}

// A pipelining client gets its responses in order.
func TestPipeline(t *testing.T) {
	each(t, func(h *fixture) {
		c := h.dialTLS()
		m := note("one")
		c.send("a LOGIN " + alice + " " + password + "\r\nb SELECT INBOX\r\nc APPEND INBOX {" + itoa(len(m)) + "+}\r\n" + m +
			"\r\nd FROB\r\ne FETCH 1 BODY[TEXT]\r\nf LOGOUT\r\n")
		for _, want := range []string{"a OK …", "b OK …", "c OK …", "d BAD …", "e OK …", "* BYE …", "f OK …"} {
			for {
				if a := c.answer(); matches(want, a) {
					break
				} else if !matches("* …", a) {
					t.Fatalf("got %q before %q", a, want)
				}
			}
		}
		c.closed()
	})
}

func TestMistakesAfterLogin(t *testing.T) {
	each(t, func(h *fixture) {
		c := h.login()
		for range 49 {
			c.bad("FROB")
		}
		c.ok("NOOP")
		for range 50 {
			c.bad("SORT (DATE) UTF-8 ALL")
		}
		c.next("* BYE …")
		c.closed()
	})
}

// Another session may delete the selected folder, even while this one reads it. Nothing is logged
// then.
func TestFolderDeleted(t *testing.T) {
	each(t, func(h *fixture) {
		a, b := h.login(), h.login()
		a.ok("CREATE Work")
		a.append("Work", "", note("one"))
		a.ok("SELECT Work")
		b.ok("SELECT Work")
		h.login().ok("DELETE Work")
		a.begin("NOOP")
		a.next("* BYE …deleted…")
		a.closed()
		b.begin("FETCH 1 BODY[]")
		b.next("* 1 FETCH (BODY[] …")
		b.next("* BYE …deleted…")
		b.closed()
		if errs := h.log.all(); len(errs) > 0 {
			t.Errorf("logged: %q", errs)
		}
	})
}
