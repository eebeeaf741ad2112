// SPDX-License-Identifier: Apache-2.0

package smtpclient

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func pool(t *testing.T, l PoolLimits) *Pool {
	t.Helper()
	p := NewPool(l)
	t.Cleanup(func() {
		if err := p.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return p
}

// many returns next and report functions for n messages, and the list of reports.
func many(n int) (next func() *Message, report func(*Message, *Result), got *[]string) {
	got = new([]string)
	return func() *Message {
			if n == 0 {
				return nil
			}
			n--
			return message("b@mx.test")
		}, func(_ *Message, r *Result) {
			*got = append(*got, classes(r))
		}, got
}

func all(class string, n int) []string { return slices.Repeat([]string{class}, n) }

func TestPoolReusesConnections(t *testing.T) {
	s := &sink{}
	p := pool(t, PoolLimits{MaxPerHost: 4, MaxMessages: 100, IdleTime: time.Minute})
	o := options(serve(t, s, false, nil))
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			next, report, got := many(50)
			if err := p.SendAll(context.Background(), o, next, report); err != nil || !slices.Equal(*got, all("delivered", 50)) {
				t.Errorf("%v, %q", err, *got)
			}
		})
	}
	wg.Wait()
	if len(s.got) != 400 || s.sessions > 8 {
		t.Errorf("%d messages in %d sessions", len(s.got), s.sessions)
	}
}

func TestPoolKeepsPoliciesApart(t *testing.T) {
	s := &sink{}
	p := pool(t, PoolLimits{})
	o := options(serve(t, s, false, nil))
	for _, policy := range []string{"", "", "dane"} {
		o.PolicyKey = policy
		next, report, _ := many(1)
		if err := p.SendAll(context.Background(), o, next, report); err != nil {
			t.Fatal(err)
		}
	}
	if s.sessions != 2 {
		t.Errorf("%d sessions", s.sessions)
	}
}

// A host that hangs up between messages, with or without a reply, costs a new connection but no
// message.
func TestPoolReplacesDeadConnections(t *testing.T) {
	for _, bye := range []string{"", "421 4.4.2 idle for too long"} {
		addr := script(t, func(h *host) {
			h.greet("PIPELINING")
			h.hear("MAIL")
			h.hear("RCPT")
			h.hear("DATA")
			h.say("250 ok", "250 ok", "354 go")
			h.message()
			h.say("250 done")
			if bye != "" {
				h.say(bye)
			}
		})
		p := pool(t, PoolLimits{})
		next, report, got := many(5)
		if err := p.SendAll(context.Background(), options(addr), next, report); err != nil || !slices.Equal(*got, all("delivered", 5)) {
			t.Errorf("%q: %v, %q", bye, err, *got)
		}
		next, report, got = many(1)
		if err := p.SendAll(context.Background(), options(addr), next, report); err != nil || !slices.Equal(*got, all("delivered", 1)) {
			t.Errorf("%q, later: %v, %q", bye, err, *got)
		}
	}
}

// A fetched message that gets no second connection is still reported.
func TestPoolReportsWhatItCouldNotReplace(t *testing.T) {
	addr := script(t, func(h *host) {
		if h.n > 1 {
			h.say("554 go away")
			return
		}
		h.greet("PIPELINING")
		h.hear("MAIL")
		h.hear("RCPT")
		h.hear("DATA")
		h.say("250 ok", "250 ok", "354 go")
		h.message()
		h.say("250 done")
		h.hear("MAIL")
	})
	p := pool(t, PoolLimits{})
	next, report, got := many(3)
	err := p.SendAll(context.Background(), options(addr), next, report)
	var de *DialError
	if !errors.As(err, &de) || de.Stage != StageGreeting || !slices.Equal(*got, []string{"delivered", "next host"}) {
		t.Errorf("%v, %q", err, *got)
	}
	if next() == nil {
		t.Error("the third message should not have been taken")
	}
}

func TestPoolHonoursMailMax(t *testing.T) {
	conns := make(chan int, 10)
	addr := script(t, func(h *host) {
		conns <- h.n
		h.greet("LIMITS MAILMAX=1")
		for _, c := range []string{"MAIL", "RCPT", "DATA"} {
			h.hear(c)
			h.say(map[string]string{"DATA": "354 go"}[c] + map[string]string{"MAIL": "250 ok", "RCPT": "250 ok"}[c])
		}
		h.message()
		h.say("250 done")
		if got := h.wait(); got != "QUIT\r\n" {
			h.t.Errorf("after the only message: %q", got)
		}
	})
	p := pool(t, PoolLimits{})
	next, report, got := many(3)
	if err := p.SendAll(context.Background(), options(addr), next, report); err != nil || !slices.Equal(*got, all("delivered", 3)) || len(conns) != 3 {
		t.Errorf("%v, %q over %d connections", err, *got, len(conns))
	}
}

func TestPoolWaitsForAPlace(t *testing.T) {
	addr := serve(t, &sink{}, false, nil)
	p := pool(t, PoolLimits{MaxPerHost: 1})
	o := options(addr)
	held, err := p.Get(context.Background(), o)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
	defer cancel()
	if _, err := p.Get(ctx, o); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a second connection: %v", err)
	}
	given := make(chan *Conn)
	go func() {
		c, err := p.Get(context.Background(), o)
		if err != nil {
			t.Error(err)
		}
		given <- c
	}()
	p.Put(held)
	c := <-given
	if c != held {
		t.Error("the connection was not passed on")
	}
	go func() {
		c, err := p.Get(context.Background(), o)
		if err != nil {
			t.Error(err)
		}
		given <- c
	}()
	c.closing = true
	p.Put(c)
	if c = <-given; c == held {
		t.Error("a dead connection was passed on")
	}
	p.Put(c)
}

func TestPoolEndsIdleConnections(t *testing.T) {
	left := make(chan string, 1)
	addr := script(t, func(h *host) {
		h.greet()
		left <- h.wait()
	})
	p := pool(t, PoolLimits{IdleTime: time.Millisecond})
	c, err := p.Get(context.Background(), options(addr))
	if err != nil {
		t.Fatal(err)
	}
	p.Put(c)
	if got := <-left; got != "QUIT\r\n" {
		t.Errorf("farewell %q", got)
	}
}

func TestPoolClose(t *testing.T) {
	addr := serve(t, &sink{}, false, nil)
	p := NewPool(PoolLimits{MaxPerHost: 1})
	o := options(addr)
	c, err := p.Get(context.Background(), o)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := p.Close(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("closing with a connection in use: %v", err)
	}
	if _, err := p.Get(context.Background(), o); !errors.Is(err, ErrPoolClosed) {
		t.Errorf("Get: %v", err)
	}
	p.Put(c)
	<-p.drained
	if !c.closed || len(p.hosts) != 0 {
		t.Errorf("closed %v, %d hosts", c.closed, len(p.hosts))
	}
}

// More messages than one connection may carry use several connections, and no more than necessary.
func TestPoolConnectionCount(t *testing.T) {
	s := &sink{}
	p := pool(t, PoolLimits{})
	next, report, got := many(3000)
	if err := p.SendAll(context.Background(), options(serve(t, s, false, nil)), next, report); err != nil {
		t.Fatal(err)
	}
	if len(*got) != 3000 || len(s.got) != 3000 || s.sessions != 3 {
		t.Errorf("%d reported, %d arrived, %d connections", len(*got), len(s.got), s.sessions)
	}
	if slices.ContainsFunc(*got, func(c string) bool { return c != "delivered" }) || !strings.Contains(s.got[2999].data, "hello") {
		t.Error("not all were delivered whole")
	}
}

// A host that rejects RSET but continues normally gets the message once.
func TestPoolAfterRefusedReset(t *testing.T) {
	var got atomic.Int32
	addr := script(t, func(h *host) {
		h.greet("PIPELINING")
		if h.n == 1 {
			h.hear("MAIL")
			h.hear("RCPT")
			h.hear("DATA")
			h.say("250 ok", "550 no such user", "503 no recipients")
			h.hear("RSET")
			h.say("502 not implemented")
		}
		h.hear("MAIL")
		h.hear("RCPT")
		h.hear("DATA")
		h.say("250 ok", "250 ok", "354 go")
		for {
			line, err := h.br.ReadString('\n')
			if err != nil {
				return
			}
			switch line {
			case ".\r\n":
				got.Add(1)
				h.say("250 taken")
			case "QUIT\r\n":
				h.say("221 bye")
			}
		}
	})
	p := pool(t, PoolLimits{})
	next, report, outcomes := many(2)
	if err := p.SendAll(context.Background(), options(addr), next, report); err != nil {
		t.Error(err)
	}
	if n := got.Load(); n != 1 || !slices.Equal(*outcomes, []string{"permanent", "delivered"}) {
		t.Errorf("the host got it %d times, %q", n, *outcomes)
	}
}
