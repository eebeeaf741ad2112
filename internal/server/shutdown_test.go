// SPDX-License-Identifier: Apache-2.0

package server_test

import (
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"net"
	"net/smtp"
	"strings"
	"testing"
	"time"

	"github.com/mailstead/mailstead/internal/server"
	"github.com/mailstead/mailstead/internal/server/servertest"
)

// ending signals when the log says that the queue ends.
type ending struct {
	slog.Handler
	told chan struct{}
}

func (e ending) Enabled(context.Context, slog.Level) bool { return true }

func (e ending) Handle(_ context.Context, r slog.Record) error {
	if strings.HasPrefix(r.Message, "the queue ends") {
		close(e.told)
	}
	return nil
}

func (e ending) WithAttrs([]slog.Attr) slog.Handler { return e }

// The queue drains together with the servers, not after them. A running session may finish
// meanwhile, and the mail that it submits is delivered after the next start.
func TestShutdownDrainsTogether(t *testing.T) {
	dir := t.TempDir()
	c := server.DevConfig(dir)
	c.PortBase = server.AnyPort
	log := ending{Handler: slog.DiscardHandler, told: make(chan struct{})}
	s, err := server.Start(t.Context(), c, slog.New(log))
	if err != nil {
		t.Fatal(err)
	}
	alice := s.Dev.Mailboxes[0]
	nc, err := tls.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", s.Dev.Ports["submissions"]), &tls.Config{InsecureSkipVerify: true})
	if err != nil {
		t.Fatal(err)
	}
	client, err := smtp.NewClient(nc, "127.0.0.1")
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close() //nolint:errcheck // the server ends it
	for _, step := range []func() error{
		func() error { return client.Auth(smtp.PlainAuth("", alice.Address, alice.Password, "127.0.0.1")) },
		func() error { return client.Mail(alice.Address) },
		func() error { return client.Rcpt("bob@demo.test") },
	} {
		if err := step(); err != nil {
			t.Fatal(err)
		}
	}
	// Idle and silent sessions don't delay the shutdown.
	silent, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", s.Dev.Ports["imap"]))
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close() //nolint:errcheck // nothing is said
	ended := make(chan error, 1)
	go func() { ended <- s.Shutdown() }()
	<-log.told
	w, err := client.Data()
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprint(w, "From: alice@demo.test\r\nSubject: at the end\r\n\r\nHo\r\n") //nolint:errcheck // Close tells
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
	again := servertest.Start(t, func(c *server.Config) { c.Data = dir })
	if mail := arrived(t, again, 1, 1); !strings.Contains(mail, "Subject: at the end") {
		t.Errorf("got\n%s", mail)
	}
}

// A host that never answers does not make the shutdown fail: the delivery is retried after the next
// start.
func TestShutdownCutsAttempts(t *testing.T) {
	mute, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer mute.Close() //nolint:errcheck // the end of the test
	s := servertest.Start(t, func(c *server.Config) {
		c.Relay = "smtp://" + mute.Addr().String()
		c.Drain = 200 * time.Millisecond
	})
	if a := s.API("POST", "/outbound/send", map[string]any{
		"from_email": "alice@demo.test", "to": []string{"x@far.example"}, "subject": "x", "text": "x"}); a.Status != 202 {
		t.Fatalf("%d %s", a.Status, a.Body)
	}
	nc, err := mute.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close() //nolint:errcheck // nothing was said
	if err := s.Stop(); err != nil {
		t.Error(err)
	}
}
