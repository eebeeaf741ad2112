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

// writeBuffer holds a group of commands and a small message in one write.
const writeBuffer = 16 << 10

var errSlow = errors.New("the host took too long")

// wire is the connection with its buffers and deadlines. Each reply has one
// deadline for all its bytes, so that a host which sends a byte a minute gains
// nothing.
type wire struct {
	tcp net.Conn
	nc  net.Conn // tcp, or TLS over it
	br  *bufio.Reader
	bw  *bufio.Writer

	ctx   context.Context // of the work in hand
	end   time.Time       // of the transaction in hand; zero: none
	write time.Duration   // longest wait for one write
	err   error           // the first error of the connection: it is of no use after it
}

func newWire(tcp net.Conn) *wire {
	w := &wire{tcp: tcp, nc: tcp, ctx: context.Background()}
	w.br = bufio.NewReader(tcp)
	w.bw = bufio.NewWriterSize(deadlineWriter{w}, writeBuffer)
	return w
}

// secure goes on with TLS. What was buffered in clear must have been looked
// at before.
func (w *wire) secure(c *tls.Conn) {
	w.nc = c
	w.br.Reset(c)
}

// use binds the connection to ctx until the returned function is called.
func (w *wire) use(ctx context.Context) (release func()) {
	w.ctx = ctx
	past := time.Unix(1, 0)
	stop := context.AfterFunc(ctx, func() { _ = w.tcp.SetDeadline(past) })
	return func() {
		if !stop() {
			_ = w.fail(context.Cause(ctx)) // noted for who asks next
		}
		w.ctx = context.Background()
		w.end = time.Time{}
	}
}

// within returns the deadline of a wait that may take d.
func (w *wire) within(d time.Duration) time.Time {
	t := time.Now().Add(d)
	if !w.end.IsZero() && w.end.Before(t) {
		return w.end
	}
	return t
}

func (w *wire) fail(err error) error {
	if w.err == nil {
		w.err = err
	}
	return w.err
}

// reason puts the caller's own cancellation and expired deadlines into words.
func (w *wire) reason(err error) error {
	if cause := context.Cause(w.ctx); cause != nil {
		return cause
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return errSlow
	}
	return err
}

// flush sends what is buffered.
func (w *wire) flush() error {
	if w.err != nil {
		return w.err
	}
	if err := w.bw.Flush(); err != nil {
		return w.fail(w.reason(err))
	}
	return nil
}

// reply reads one reply within d; buffered commands are to be flushed before.
func (w *wire) reply(d time.Duration) (Reply, error) {
	if w.err != nil {
		return Reply{}, w.err
	}
	return w.replyAfterFailure(d)
}

// replyAfterFailure reads a reply also when writing has failed: a host that
// refuses a message half-way says why before it closes.
func (w *wire) replyAfterFailure(d time.Duration) (Reply, error) {
	if err := w.nc.SetReadDeadline(w.within(d)); err != nil {
		return Reply{}, w.fail(w.reason(err))
	}
	if cause := context.Cause(w.ctx); cause != nil {
		return Reply{}, w.fail(cause)
	}
	r, err := readReply(w.br)
	if err != nil {
		return Reply{}, w.fail(w.reason(err))
	}
	return r, nil
}

// deadlineWriter gives every write to the connection its own deadline.
type deadlineWriter struct{ w *wire }

func (d deadlineWriter) Write(p []byte) (int, error) {
	if err := d.w.nc.SetWriteDeadline(d.w.within(d.w.write)); err != nil {
		return 0, err
	}
	if cause := context.Cause(d.w.ctx); cause != nil {
		return 0, cause
	}
	return d.w.nc.Write(p)
}
