// SPDX-License-Identifier: Apache-2.0

package main_test

import (
	"bufio"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/mailstead/mailstead/client"
	"github.com/mailstead/mailstead/internal/server/servertest"
)

// wire forwards connections to a service until it is cut.
type wire struct {
	net.Listener
	to string

	mu    sync.Mutex
	is    bool // cut
	conns []net.Conn
}

func newWire(t *testing.T, to string) *wire {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w := &wire{Listener: l, to: to}
	t.Cleanup(func() { _ = l.Close(); w.cut(true) })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go w.pass(c)
		}
	}()
	return w
}

func (w *wire) pass(c net.Conn) {
	defer c.Close() //nolint:errcheck // that is what it is for
	far, err := net.Dial("tcp", w.to)
	if err != nil {
		return
	}
	defer far.Close() //nolint:errcheck // the same
	w.mu.Lock()
	w.conns = append(w.conns, c, far)
	cut := w.is
	w.mu.Unlock()
	if cut {
		return
	}
	go func() { _, _ = io.Copy(far, c) }()
	_, _ = io.Copy(c, far)
}

// cut breaks all connections, and new ones until it is called with false.
func (w *wire) cut(is bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.is = is
	for _, c := range w.conns {
		_ = c.Close()
	}
	w.conns = nil
}

// hooked is a request to a receiver.
type hooked struct {
	path   string
	header http.Header
	body   string
}

// receive runs a receiver at an address ("127.0.0.1:0" for any) until it is closed.
func receive(t *testing.T, addr string, got chan<- hooked) (s *http.Server, at string) {
	t.Helper()
	l, err := net.Listen("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	s = &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		w.WriteHeader(http.StatusAccepted)
		got <- hooked{r.URL.Path, r.Header, string(body)}
	})}
	go func() { _ = s.Serve(l) }()
	t.Cleanup(func() { _ = s.Close() })
	return s, l.Addr().String()
}

// Events arrive like webhooks, each once, despite broken connections.
func TestListen(t *testing.T) {
	servertest.Each(t, func(t *testing.T, s *servertest.Server) {
		got := make(chan hooked, 100)
		receiver, at := receive(t, "127.0.0.1:0", got)
		w := newWire(t, s.Addr("http"))
		send := func() string {
			t.Helper()
			var m struct{ ID string }
			s.API("POST", "/outbound/send", map[string]any{"from_email": "alice@demo.test", "to": []string{"bounced@simulator.test"}, "subject": "x", "text": "x"}).Decode(t, &m)
			return m.ID
		}
		send() // before it listens
		servertest.Eventually(t, func() string {
			if a := s.API("GET", "/events?type=bounce", nil); !strings.Contains(string(a.Body), `"bounce"`) {
				return "there is no event yet"
			}
			return ""
		})
		c := command(t, []string{"MAILSTEAD_API_KEY=" + s.Dev.APIKey}, "listen", "--url", "http://"+w.Addr().String(), "--events", "bounce,complaint", "--forward", "http://"+at+"/forward")
		stdout, err := c.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewScanner(stdout)
		next := func() string {
			t.Helper()
			if !lines.Scan() {
				t.Fatalf("it ended: %v", c.Wait())
			}
			return lines.Text()
		}
		if line := next(); !strings.HasPrefix(line, "Forwarding bounce, complaint of http://") {
			t.Errorf("it says %q", line)
		}
		secret, is := strings.CutPrefix(next(), "Secret ")
		if !is || !strings.HasPrefix(secret, "whsec_") {
			t.Errorf("the secret is %q", secret)
		}
		// Messages sent at the same time bounce in any order.
		expect := func(messages ...string) (r hooked) {
			t.Helper()
			for len(messages) > 0 {
				r = <-got
				e, err := client.VerifyWebhook(r.header, []byte(r.body), secret)
				which := slices.IndexFunc(messages, func(m string) bool { return strings.Contains(r.body, m) })
				if err != nil || !client.WebhookSigned(r.header, []byte(r.body), secret) || e.Type != "bounce" || which < 0 {
					t.Fatalf("got %v %s, %v", r.header, r.body, err)
				}
				messages = slices.Delete(messages, which, which+1)
				if line := next(); !strings.Contains(line, "bounce") || !strings.Contains(line, e.ID+"  202  ") {
					t.Errorf("it says %q", line)
				}
			}
			return r
		}
		first := expect(send())
		alike(t, s, at, first, got)

		// First the service is unreachable, then the application.
		w.cut(true)
		lost := []string{send(), send()}
		w.cut(false)
		expect(lost...)
		if err := receiver.Close(); err != nil {
			t.Fatal(err)
		}
		lost = []string{send(), send()}
		receive(t, at, got)
		expect(lost...)
		if err := c.Process.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		if lines.Scan() {
			t.Errorf("it says %q too", lines.Text())
		}
		if err := c.Wait(); err != nil {
			t.Errorf("after SIGTERM: %v", err)
		}
		if len(got) > 0 {
			t.Errorf("%+v came again", <-got)
		}
	})
}

// alike compares a forwarded event with the webhook for the same event.
func alike(t *testing.T, s *servertest.Server, at string, forwarded hooked, got <-chan hooked) {
	t.Helper()
	var hook struct{ ID string }
	s.API("POST", "/webhooks", map[string]any{"url": "http://" + at + "/webhook", "events": []string{"bounce"}}).Decode(t, &hook)
	s.API("POST", "/webhooks/"+hook.ID+"/replay?created_after=2026-01-01T00:00:00Z", nil)
	for {
		r := <-got
		if r.path != "/webhook" {
			t.Fatalf("got %s", r.path)
		}
		if r.header.Get("X-Event-ID") != forwarded.header.Get("X-Event-ID") {
			continue // an earlier event
		}
		if names, want := slices.Sorted(maps.Keys(forwarded.header)), slices.Sorted(maps.Keys(r.header)); !slices.Equal(names, want) {
			t.Errorf("forwarded with %v, a webhook with %v", names, want)
		}
		for _, name := range []string{"X-Service-Event", "Content-Type", "Webhook-Id"} {
			if forwarded.header.Get(name) != r.header.Get(name) {
				t.Errorf("%s is %q, of a webhook %q", name, forwarded.header.Get(name), r.header.Get(name))
			}
		}
		if forwarded.body != r.body {
			t.Errorf("forwarded %s, a webhook %s", forwarded.body, r.body)
		}
		if a := s.API("DELETE", "/webhooks/"+hook.ID, nil); a.Status != http.StatusNoContent {
			t.Errorf("deleting: %d %s", a.Status, a.Body)
		}
		return
	}
}

// listen finds the sandbox by itself, with the same secret each time.
func TestListenBesideDev(t *testing.T) {
	s := servertest.Start(t)
	var secrets []string
	for range 2 {
		c := command(t, nil, "listen", "--data", s.Config.Data, "--forward", "http://127.0.0.1:1/")
		stdout, err := c.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewScanner(stdout)
		for lines.Scan() && !strings.HasPrefix(lines.Text(), "Secret ") {
		}
		secrets = append(secrets, lines.Text())
		if err := c.Process.Signal(syscall.SIGINT); err != nil {
			t.Fatal(err)
		}
		if err := c.Wait(); err != nil {
			t.Errorf("after SIGINT: %v", err)
		}
	}
	if secrets[0] != secrets[1] || secrets[0] == "" {
		t.Errorf("the secrets are %q", secrets)
	}
	here := []string{"listen", "--url", s.Dev.BaseURL, "--forward", "http://127.0.0.1:1/"}
	refused(t, "--key", nil, here...)
	refused(t, "mailstead: This API key is not valid", nil, append(here, "--key", "ms_nobody")...)
	refused(t, "mailstead: --events: Give one of inbound_email, ", nil, append(here, "--key", s.Dev.APIKey, "--events", "bounces")...)
	refused(t, "--forward", nil, "listen", "--forward", "localhost:3000")
	refused(t, "--forward", nil, "listen")
	refused(t, "mailstead dev", nil, "listen", "--data", t.TempDir(), "--forward", "http://127.0.0.1:1/")
	refused(t, "refused", nil, "listen", "--url", fmt.Sprintf("http://127.0.0.1:%d", servertest.FreePortBase(t)+80), "--key", "ms_x", "--forward", "http://127.0.0.1:1/")
}
