// SPDX-License-Identifier: Apache-2.0

package smtpclient

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"net"
	"os"
	"time"
)

// writeBufferSize is enough for a group of commands and a small message in one write.
const writeBufferSize = 16 << 10

var errTimeout = errors.New("the host took too long")

// transport is the network connection with its buffers and deadlines. All bytes of a reply share
// one deadline, so that a host can't gain time by sending a byte a minute.
type transport struct {
	tcp net.Conn
	nc  net.Conn // tcp, or TLS over it
	br  *bufio.Reader
	bw  *bufio.Writer

	ctx          context.Context // context of the current call
	txDeadline   time.Time       // deadline of the current transaction; zero: none
	writeTimeout time.Duration   // timeout of one write
	err          error           // first error of the connection, which is unusable after it
}

func newTransport(tcp net.Conn) *transport {
	w := &transport{tcp: tcp, nc: tcp, ctx: context.Background()}
	w.br = bufio.NewReader(tcp)
	w.bw = bufio.NewWriterSize(deadlineWriter{w}, writeBufferSize)
	return w
}

// startTLS switches to TLS. The caller must have checked that no plaintext is left in the buffer.
func (w *transport) startTLS(c *tls.Conn) {
	w.nc = c
	w.br.Reset(c)
}

// bindContext binds the connection to ctx until the returned function is called.
func (w *transport) bindContext(ctx context.Context) (release func()) {
	w.ctx = ctx
	past := time.Unix(1, 0)
	stop := context.AfterFunc(ctx, func() { _ = w.tcp.SetDeadline(past) })
	return func() {
		if !stop() {
			_ = w.fail(context.Cause(ctx)) // kept for the next caller
		}
		w.ctx = context.Background()
		w.txDeadline = time.Time{}
	}
}

// deadline returns the deadline of a wait of at most d.
func (w *transport) deadline(d time.Duration) time.Time {
	t := time.Now().Add(d)
	if !w.txDeadline.IsZero() && w.txDeadline.Before(t) {
		return w.txDeadline
	}
	return t
}

func (w *transport) fail(err error) error {
	if w.err == nil {
		w.err = err
	}
	return w.err
}

// translateError returns the caller's cancellation, or errTimeout for an expired deadline, in place
// of the network's error.
func (w *transport) translateError(err error) error {
	if cause := context.Cause(w.ctx); cause != nil {
		return cause
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return errTimeout
	}
	return err
}

// flush writes the buffered bytes to the connection.
func (w *transport) flush() error {
	if w.err != nil {
		return w.err
	}
	if err := w.bw.Flush(); err != nil {
		return w.fail(w.translateError(err))
	}
	return nil
}

// readReply reads one reply within d. Flush buffered commands first.
func (w *transport) readReply(d time.Duration) (Reply, error) {
	if w.err != nil {
		return Reply{}, w.err
	}
	return w.readReplyAfterFailure(d)
}

// readReplyAfterFailure reads a reply even if writing has failed: a host that rejects a message
// half-way says why before it closes.
func (w *transport) readReplyAfterFailure(d time.Duration) (Reply, error) {
	if err := w.nc.SetReadDeadline(w.deadline(d)); err != nil {
		return Reply{}, w.fail(w.translateError(err))
	}
	if cause := context.Cause(w.ctx); cause != nil {
		return Reply{}, w.fail(cause)
	}
	r, err := readReply(w.br)
	if err != nil {
		return Reply{}, w.fail(w.translateError(err))
	}
	return r, nil
}

// deadlineWriter sets a deadline for each write to the connection.
type deadlineWriter struct{ transport *transport }

func (d deadlineWriter) Write(p []byte) (int, error) {
	if err := d.transport.nc.SetWriteDeadline(d.transport.deadline(d.transport.writeTimeout)); err != nil {
		return 0, err
	}
	if cause := context.Cause(d.transport.ctx); cause != nil {
		return 0, cause
	}
	return d.transport.nc.Write(p)
}
