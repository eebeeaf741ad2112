// SPDX-License-Identifier: Apache-2.0

package smtpd_test

import (
	"bufio"
	"context"
	"io"
	"net"
	"strings"
	"testing"

	"github.com/mailstead/mailstead/internal/address"
	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/message"
	"github.com/mailstead/mailstead/internal/ratelimit"
	"github.com/mailstead/mailstead/internal/smtpd"
)

// nowhere is a Backend that accepts everything and stores nothing.
type nowhere struct{}

func (n nowhere) Begin(context.Context, smtpd.Envelope) (smtpd.Transaction, error)     { return n, nil }
func (nowhere) AddRecipient(context.Context, address.Address, smtpd.RcptOptions) error { return nil }
func (nowhere) ReceiveMessage(_ context.Context, _ message.ReceivedField, body io.Reader) (db.ID, error) {
	_, err := io.Copy(io.Discard, body)
	return 1, err
}

// BenchmarkListener measures the protocol's cost for a message of 4 KiB.
func BenchmarkListener(b *testing.B) {
	s := &smtpd.Server{Host: "mail.host.test", Backend: nowhere{}, ConnLimiter: &ratelimit.ConnLimiter{}, Log: discard}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	go func() { _ = s.Serve(ln) }()
	defer s.Shutdown(context.Background()) //nolint:errcheck // without a deadline it has none to return
	body := "Subject: bench\r\n\r\n" + strings.Repeat("0123456789012345678901234567890123456789012345678901234567890123\r\n", 62) + ".\r\n"
	b.SetBytes(int64(len(body)))
	b.RunParallel(func(pb *testing.PB) {
		nc, err := net.Dial("tcp", ln.Addr().String())
		if err != nil {
			b.Error(err)
			return
		}
		defer nc.Close() //nolint:errcheck // only a client
		c := &client{t: b, nc: nc, br: bufio.NewReader(nc)}
		c.want("220 ")
		c.say("EHLO client.example", "250 ")
		for pb.Next() {
			c.send("MAIL FROM:<ann@example.com>\r\nRCPT TO:<bob@demo.test>\r\nDATA\r\n")
			c.want("250 ")
			c.want("250 ")
			c.want("354 ")
			c.send(body)
			c.want("250 ")
		}
		c.say("QUIT", "221 ")
	})
}
