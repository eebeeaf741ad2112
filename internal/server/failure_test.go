// SPDX-License-Identifier: Apache-2.0

package server_test

import (
	"bufio"
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/mailstead/mailstead/client"
	"github.com/mailstead/mailstead/internal/server"
	"github.com/mailstead/mailstead/internal/server/servertest"
)

// slowHost accepts mail, and answers 250 to a message once it is released.
type slowHost struct {
	net.Listener
	whole   chan struct{} // one value for each complete message
	release chan struct{}
}

func newSlowHost(t *testing.T) *slowHost {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	h := &slowHost{Listener: l, whole: make(chan struct{}, 10), release: make(chan struct{})}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go h.talk(c)
		}
	}()
	return h
}

func (h *slowHost) talk(c net.Conn) {
	defer c.Close() //nolint:errcheck // the end of the conversation
	say := func(s string) { _, _ = fmt.Fprintf(c, "%s\r\n", s) }
	say("220 slow.example")
	data := false
	for lines := bufio.NewScanner(c); lines.Scan(); {
		switch line := lines.Text(); {
		case data && line == ".":
			h.whole <- struct{}{}
			<-h.release
			data = false
			say("250 2.0.0 taken")
		case data:
		case line == "DATA":
			data = true
			say("354 go")
		case line == "QUIT":
			say("221 bye")
			return
		default:
			say("250 ok")
		}
	}
}

// breakListener makes the next Accept of a port of this process fail.
func breakListener(t *testing.T, port int) {
	t.Helper()
	all, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range all {
		fd, err := strconv.Atoi(filepath.Base(f.Name()))
		if err != nil {
			continue
		}
		if listens, err := syscall.GetsockoptInt(fd, syscall.SOL_SOCKET, syscall.SO_ACCEPTCONN); err != nil || listens == 0 {
			continue
		}
		at, err := syscall.Getsockname(fd)
		if v4, ok := at.(*syscall.SockaddrInet4); err == nil && ok && v4.Port == port {
			if err := syscall.Shutdown(fd, syscall.SHUT_RDWR); err != nil {
				t.Fatal(err)
			}
			return
		}
	}
	t.Fatalf("nobody listens on port %d", port)
}

// After a listener has failed, the service drains as at any other shutdown. If a host accepts mail
// meanwhile, that is recorded, and the mail is not sent again after the next start.
func TestFailedListenerDrains(t *testing.T) {
	host, dir := newSlowHost(t), t.TempDir()
	c := server.DevConfig(dir)
	c.PortBase, c.Relay = server.AnyPort, "smtp://"+host.Addr().String()
	log := ending{Handler: slog.DiscardHandler, told: make(chan struct{})}
	s, err := server.Start(t.Context(), c, slog.New(log))
	if err != nil {
		t.Fatal(err)
	}
	api, err := client.New(s.Dev.BaseURL, s.Dev.APIKey)
	if err != nil {
		t.Fatal(err)
	}
	sent, err := api.Send(t.Context(), &client.Send{FromEmail: "alice@demo.test", To: []string{"x@far.example"}, Subject: "x", Text: "x"})
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- s.Run(context.Background()) }()
	<-host.whole
	breakListener(t, s.Dev.Ports["http"])
	select {
	case <-log.told:
	case err := <-ended:
		t.Fatalf("the service ended at once: %v", err)
	}
	close(host.release)
	if err := <-ended; err == nil || !strings.Contains(err.Error(), "the http listener") {
		t.Errorf("it ended with %v", err)
	}
	again := servertest.Start(t, func(c *server.Config) { c.Data, c.Relay = dir, "smtp://"+host.Addr().String() })
	var shown struct{ Status string }
	again.API("GET", "/outbound/messages/"+sent.ID, nil).Decode(t, &shown)
	if shown.Status != "delivered" || len(host.whole) > 0 {
		t.Errorf("it is %s; sent again: %d", shown.Status, len(host.whole))
	}
}
