// SPDX-License-Identifier: Apache-2.0

package smtpd

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/mailstead/mailstead/internal/heaptest"
)

// talker is a connection whose client sends given data and reads nothing.
type talker struct {
	net.Conn
	io.Reader
}

func (c talker) Read(p []byte) (int, error)       { return c.Reader.Read(p) }
func (c talker) Write(p []byte) (int, error)      { return len(p), nil }
func (c talker) Close() error                     { return nil }
func (c talker) SetReadDeadline(time.Time) error  { return nil }
func (c talker) SetWriteDeadline(time.Time) error { return nil }

func talking(r io.Reader) *conn {
	return newConn(&Server{Mode: MX, Host: "mx.test", MaxSize: 2 * heaptest.Size, Log: slog.New(slog.DiscardHandler)}, talker{Reader: r}, netip.IPv6Loopback())
}

// A session needs little memory, whatever a client sends.
func TestMemoryOfSession(t *testing.T) {
	session := func(r io.Reader) any {
		c := talking(r)
		c.run(context.Background())
		return c
	}
	heaptest.Check(t, session,
		heaptest.Input{Head: "", Unit: "a"},
		heaptest.Input{Head: "EHLO x\r\nMAIL FROM:<", Unit: "\\"},
		heaptest.Input{Head: "EHLO x\r\nBDAT 67000000\r\n", Unit: "\n"})
}

func TestMemoryOfData(t *testing.T) {
	for _, unit := range []string{"\n", ".", "\r\n."} {
		heaptest.Check(t, func(r io.Reader) any { return heaptest.Discard(&dotReader{c: talking(r), lineStart: true}) }, heaptest.Input{Unit: unit})
	}
	chunks := func(r io.Reader) any {
		k := &bdatReader{c: talking(r)}
		if _, err := io.Copy(io.Discard, struct{ io.Reader }{k}); err == nil || errors.Is(err, errTooMuchData) {
			t.Error(err)
		}
		return k
	}
	heaptest.Check(t, chunks,
		heaptest.Input{Unit: "BDAT 4000\r\n" + string(make([]byte, 4000))},
		heaptest.Input{Head: "BDAT 67000000\r\n", Unit: "\n"})
}
