// SPDX-License-Identifier: Apache-2.0

package smtpd

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"runtime/debug"
	"sync"
	"time"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/notify"
)

// conn is one session. All fields except those that mu guards belong to its goroutine.
type conn struct {
	srv *Server
	ip  netip.Addr
	log *slog.Logger
	br  *bufio.Reader
	bw  *bufio.Writer

	mu   sync.Mutex
	nc   net.Conn
	idle bool // whether it waits for a command outside of a transaction

	tls          *tls.ConnectionState
	helo         string // "" until EHLO or HELO
	esmtp        bool   // whether the client sent EHLO
	user         *login
	revocations  *notify.Subscription
	recheckLogin bool // whether to check the login before the next message
	tx           *currentTransaction
	body         *bufio.Reader // reader of the current message

	badCommands, idleCommands, rejectedRcpts, authFailures int       // counters of the limits
	unknownRcpts                                           int       // number of recipients rejected because they don't exist
	messageDeadline                                        time.Time // when the current message must be complete; zero: no message
	closing                                                bool      // whether to close the connection after the current reply
}

// currentTransaction is the session's transaction, from MAIL to the end of the message.
type currentTransaction struct {
	Transaction
	envelope Envelope
	accepted []string // accepted recipients, as the client wrote them
	utf8     bool
	eightBit bool
}

const readBufferSize = 8 << 10

func newConn(s *Server, nc net.Conn, ip netip.Addr) *conn {
	return &conn{
		srv: s, ip: ip, nc: nc,
		log: s.Log.With("listener", s.Mode.String(), "client", ip.String()),
		br:  bufio.NewReaderSize(nc, readBufferSize),
		bw:  bufio.NewWriterSize(nc, 2<<10),
	}
}

// run serves the session until it ends.
func (c *conn) run(ctx context.Context) {
	defer c.close()
	defer func() {
		// A panic in one session must not end the others.
		if p := recover(); p != nil {
			c.log.Error("a session broke down", "panic", p, "stack", string(debug.Stack()))
		}
	}()
	if c.srv.Mode == SubmissionTLS && !c.startTLS(ctx) {
		return
	}
	if !c.sendGreeting() {
		return
	}
	for !c.closing {
		line, err := c.readLine()
		var r reply
		switch {
		case errors.Is(err, errBadLine):
			r = reply{500, "5.5.2", err.Error()}
		case err != nil:
			c.handleReadError(err)
			return
		default:
			r = c.execute(ctx, line)
		}
		c.writeReply(c.enforceLimits(r))
	}
	_ = c.flush()
}

func (c *conn) close() {
	if c.revocations != nil {
		c.revocations.Close()
	}
	c.closeConn()
}

// closeConn closes the connection, even while the session is busy.
func (c *conn) closeConn() {
	c.mu.Lock()
	defer c.mu.Unlock()
	_ = c.nc.Close()
}

// interrupt ends an idle session's wait for a command.
func (c *conn) interrupt() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.idle {
		_ = c.nc.SetReadDeadline(time.Unix(1, 0))
	}
}

// sendGreeting sends the greeting. On MX it first waits for GreetDelay, and rejects a client that
// sends something before the greeting.
func (c *conn) sendGreeting() bool {
	s := c.srv
	if s.Mode == MX && s.GreetDelay > 0 && (s.SkipGreetDelay == nil || !s.SkipGreetDelay(c.ip)) {
		if err := c.setReadDeadline(s.GreetDelay); err != nil {
			c.handleReadError(err)
			return false
		}
		_, err := c.br.Peek(1)
		switch {
		case err == nil:
			c.log.Info("a client spoke before the greeting")
			c.writeReply(reply{554, "5.5.1", "You spoke before our greeting"})
			_ = c.flush()
			return false
		case !errors.Is(err, os.ErrDeadlineExceeded) || s.isDraining():
			c.handleReadError(err)
			return false
		}
	}
	c.writeReply(reply{220, "", s.Host + " ESMTP Mailstead"})
	return true
}

// handleReadError sends the last reply of a session that failed to read, and flushes.
func (c *conn) handleReadError(err error) {
	switch {
	case errors.Is(err, errDraining), errors.Is(err, os.ErrDeadlineExceeded) && c.srv.isDraining():
		c.writeReply(reply{421, "4.3.2", "The service is shutting down"})
	case errors.Is(err, os.ErrDeadlineExceeded):
		c.writeReply(reply{421, "4.4.2", "This took too long; goodbye"})
	}
	_ = c.flush()
}

var errDraining = errors.New("the server is draining")

// setReadDeadline limits the time of the next read.
func (c *conn) setReadDeadline(d time.Duration) error {
	draining := c.srv.isDraining()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.idle = c.tx == nil; c.idle && draining {
		return errDraining
	}
	at := time.Now().Add(d)
	if !c.messageDeadline.IsZero() && c.messageDeadline.Before(at) {
		at = c.messageDeadline
	}
	return c.nc.SetReadDeadline(at)
}

// lineError is the error of an invalid command line.
type lineError string

func (e lineError) Error() string { return string(e) }

// Is makes errors.Is(err, errBadLine) true for all of them.
func (e lineError) Is(target error) bool { return target == errBadLine }

var errBadLine = errors.New("not a line")

const (
	errLineTooLong = lineError("The line is too long")
	errLineEnding  = lineError("Lines end with CR LF, and have neither elsewhere")
)

// readLine returns the next command line without its line end. It first sends the queued replies,
// unless another command has already arrived (RFC 2920 §3.2).
func (c *conn) readLine() (string, error) {
	if err := c.setReadDeadline(commandTimeout); err != nil {
		return "", err
	}
	ahead, err := c.br.Peek(c.br.Buffered())
	if err == nil && bytes.IndexByte(ahead, '\n') < 0 {
		err = c.flush()
	}
	if err != nil {
		return "", err
	}
	line, err := c.br.ReadSlice('\n')
	if errors.Is(err, bufio.ErrBufferFull) || err == nil && len(line) > maxLineLength {
		for errors.Is(err, bufio.ErrBufferFull) {
			_, err = c.br.ReadSlice('\n')
		}
		if err == nil {
			err = errLineTooLong
		}
	}
	if err != nil {
		return "", err
	}
	text, ok := bytes.CutSuffix(line, []byte("\r\n"))
	if !ok || bytes.IndexByte(text, '\r') >= 0 || bytes.IndexByte(text, 0) >= 0 {
		return "", errLineEnding
	}
	return string(text), nil
}

// writeReply queues a reply. The zero reply is not sent.
func (c *conn) writeReply(r reply) {
	if r.code != 0 {
		_, _ = c.bw.Write(r.append(c.bw.AvailableBuffer())) // bw keeps an error, and flush returns it
	}
}

func (c *conn) flush() error {
	if c.bw.Buffered() == 0 {
		return nil
	}
	_ = c.nc.SetWriteDeadline(time.Now().Add(writeTimeout))
	return c.bw.Flush()
}

// enforceLimits ends a session with too many mistakes or useless commands.
func (c *conn) enforceLimits(r reply) reply {
	switch r.code {
	case 500, 501, 502, 503, 504, 530, 538, 555:
		c.badCommands++
	}
	if !c.closing && (c.badCommands > maxBadCommands || c.idleCommands > maxIdleCommands || c.rejectedRcpts > maxRejectedRcpts) {
		c.log.Info("a session was ended for too many mistakes", "bad", c.badCommands, "dull", c.idleCommands, "refused", c.rejectedRcpts)
		c.closing = true
		return reply{421, "4.7.0", "Too many mistakes; goodbye"}
	}
	return r
}

// resetTransaction ends the transaction, completed or not.
func (c *conn) resetTransaction() { c.tx, c.messageDeadline = nil, time.Time{} }

// startTLS does the TLS handshake, and reports whether it succeeded.
func (c *conn) startTLS(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, handshakeTimeout)
	defer cancel()
	t := tls.Server(c.nc, c.srv.TLS)
	_ = c.nc.SetDeadline(time.Now().Add(handshakeTimeout)) // HandshakeContext limits only the reads, this also the writes
	if err := t.HandshakeContext(ctx); err != nil {
		c.log.Info("a TLS handshake failed", "error", err)
		return false
	}
	_ = c.nc.SetDeadline(time.Time{})
	c.mu.Lock()
	c.nc = t
	c.mu.Unlock()
	state := t.ConnectionState()
	c.tls = &state
	c.br.Reset(t)
	c.bw.Reset(t)
	return true
}

// discard reads and drops n octets.
func (c *conn) discard(n int64) error {
	for n > 0 {
		if err := c.setBlockDeadline(); err != nil {
			return err
		}
		m, err := c.br.Discard(int(min(n, readBufferSize)))
		n -= int64(m)
		if err != nil {
			return unexpectedEOF(err)
		}
	}
	return nil
}

// setBlockDeadline is setReadDeadline for the next block of a message. It does nothing if some of
// it is already buffered.
func (c *conn) setBlockDeadline() error {
	if c.br.Buffered() > 0 {
		return nil
	}
	if err := c.flush(); err != nil {
		return err
	}
	return c.setReadDeadline(blockTimeout)
}

func unexpectedEOF(err error) error {
	if err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}

// logAccepted logs an accepted message, in one line.
func (c *conn) logAccepted(id db.ID, size int64) {
	e := c.tx.envelope
	attrs := []any{"id", id, "from", "", "recipients", len(c.tx.accepted), "to", c.tx.accepted[0], "size", size, "helo", c.helo, "tls", c.tls != nil}
	if e.From != nil {
		attrs[3] = e.From.String()
	}
	if c.user != nil {
		attrs = append(attrs, c.user.logAttr()...)
	}
	c.log.Info("message accepted", attrs...)
}
