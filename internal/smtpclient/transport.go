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

// writeBufferSize holds a group of commands and a small message in one write.
const writeBufferSize = 16 << 10

var errTimeout = errors.New("the host took too long")

// transport is the connection with its buffers and deadlines. Each reply has one
// deadline for all its bytes, so that a host which sends a byte a minute gains
// nothing.
type transport struct {
	tcp net.Conn
	nc  net.Conn // tcp, or TLS over it
	br  *bufio.Reader
	bw  *bufio.Writer

	ctx          context.Context // of the work in hand
	txDeadline   time.Time       // of the transaction in hand; zero: none
	writeTimeout time.Duration   // longest wait for one write
	err          error           // the first error of the connection: it is of no use after it
}

func newTransport(tcp net.Conn) *transport {
	w := &transport{tcp: tcp, nc: tcp, ctx: context.Background()}
	w.br = bufio.NewReader(tcp)
	w.bw = bufio.NewWriterSize(deadlineWriter{w}, writeBufferSize)
	return w
}

// startTLS goes on with TLS. What was buffered in clear must have been looked
// at before.
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
			_ = w.fail(context.Cause(ctx)) // noted for who asks next
		}
		w.ctx = context.Background()
		w.txDeadline = time.Time{}
	}
}

// deadline returns the deadline of a wait that may take d.
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

// translateError puts the caller's own cancellation and expired deadlines into words.
func (w *transport) translateError(err error) error {
	if cause := context.Cause(w.ctx); cause != nil {
		return cause
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return errTimeout
	}
	return err
}

// flush sends what is buffered.
func (w *transport) flush() error {
	if w.err != nil {
		return w.err
	}
	if err := w.bw.Flush(); err != nil {
		return w.fail(w.translateError(err))
	}
	return nil
}

// readReply reads one reply within d; buffered commands are to be flushed before.
func (w *transport) readReply(d time.Duration) (Reply, error) {
	if w.err != nil {
		return Reply{}, w.err
	}
	return w.readReplyAfterFailure(d)
}

// readReplyAfterFailure reads a reply also when writing has failed: a host that
// refuses a message half-way says why before it closes.
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

// deadlineWriter gives every write to the connection its own deadline.
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
