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
	"github.com/mailstead/mailstead/internal/signal"
)

// conn is one session. All but what mu guards belongs to its goroutine.
type conn struct {
	srv *Server
	ip  netip.Addr
	log *slog.Logger
	br  *bufio.Reader
	bw  *bufio.Writer

	mu   sync.Mutex
	nc   net.Conn
	idle bool // it waits for a command, and has no transaction in hand

	tls      *tls.ConnectionState
	helo     string // "" until EHLO or HELO
	extended bool   // EHLO
	user     *login
	revoked  *signal.Sub
	doubted  bool // the log-in is to be looked at before the next message
	letter   *letter
	body     *bufio.Reader // of the message being read

	bad, dull, refused, failed int       // what the limits count
	strange                    int       // recipients refused because they don't exist
	until                      time.Time // when a message must be there; zero outside of one
	closing                    bool      // after the reply to this command
}

// letter is the transaction in hand: from MAIL to the message's end.
type letter struct {
	Transaction
	envelope Envelope
	rcpts    []string // accepted, as the client wrote them
	utf8     bool
	eightBit bool
}

const readBuffer = 8 << 10

func newConn(s *Server, nc net.Conn, ip netip.Addr) *conn {
	return &conn{
		srv: s, ip: ip, nc: nc,
		log: s.Log.With("door", s.Mode.String(), "client", ip.String()),
		br:  bufio.NewReaderSize(nc, readBuffer),
		bw:  bufio.NewWriterSize(nc, 2<<10),
	}
}

// run serves the session to its end.
func (c *conn) run(ctx context.Context) {
	defer c.close()
	defer func() {
		// One session must not end those of others.
		if p := recover(); p != nil {
			c.log.Error("a session broke down", "panic", p, "stack", string(debug.Stack()))
		}
	}()
	if c.srv.Mode == Submissions && !c.secure(ctx) {
		return
	}
	if !c.greet() {
		return
	}
	for !c.closing {
		line, err := c.readLine()
		var r reply
		switch {
		case errors.Is(err, errLine):
			r = reply{500, "5.5.2", err.Error()}
		case err != nil:
			c.lost(err)
			return
		default:
			r = c.command(ctx, line)
		}
		c.write(c.count(r))
	}
	_ = c.flush()
}

func (c *conn) close() {
	if c.revoked != nil {
		c.revoked.Close()
	}
	c.cut()
}

// cut ends the connection, whatever the session is doing.
func (c *conn) cut() {
	c.mu.Lock()
	defer c.mu.Unlock()
	_ = c.nc.Close()
}

// interrupt ends the wait for a command of a session that is idle.
func (c *conn) interrupt() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.idle {
		_ = c.nc.SetReadDeadline(time.Unix(1, 0))
	}
}

// greet says who we are, unless the client speaks before us.
func (c *conn) greet() bool {
	s := c.srv
	if s.Mode == MX && s.GreetDelay > 0 && (s.Friend == nil || !s.Friend(c.ip)) {
		if err := c.arm(s.GreetDelay); err != nil {
			c.lost(err)
			return false
		}
		_, err := c.br.Peek(1)
		switch {
		case err == nil:
			c.log.Info("a client spoke before the greeting")
			c.write(reply{554, "5.5.1", "You spoke before our greeting"})
			_ = c.flush()
			return false
		case !errors.Is(err, os.ErrDeadlineExceeded) || s.isDraining():
			c.lost(err)
			return false
		}
	}
	c.write(reply{220, "", s.Host + " ESMTP Mailstead"})
	return true
}

// lost ends a session that can't be read from any more.
func (c *conn) lost(err error) {
	switch {
	case errors.Is(err, errDraining), errors.Is(err, os.ErrDeadlineExceeded) && c.srv.isDraining():
		c.write(reply{421, "4.3.2", "The service is shutting down"})
	case errors.Is(err, os.ErrDeadlineExceeded):
		c.write(reply{421, "4.4.2", "This took too long; goodbye"})
	}
	_ = c.flush()
}

var errDraining = errors.New("the server is draining")

// arm bounds how long the next read may take.
func (c *conn) arm(d time.Duration) error {
	draining := c.srv.isDraining()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.idle = c.letter == nil; c.idle && draining {
		return errDraining
	}
	at := time.Now().Add(d)
	if !c.until.IsZero() && c.until.Before(at) {
		at = c.until
	}
	return c.nc.SetReadDeadline(at)
}

// lineError is a line that is no command.
type lineError string

func (e lineError) Error() string { return string(e) }

// Is makes errors.Is(err, errLine) true for each of them.
func (e lineError) Is(target error) bool { return target == errLine }

var errLine = errors.New("not a line")

const (
	errLong = lineError("The line is too long")
	errEnd  = lineError("Lines end with CR LF, and have neither elsewhere")
)

// readLine returns the next command line without its end. What we have to say
// goes out first, unless more commands are here already (RFC 2920 §3.2).
func (c *conn) readLine() (string, error) {
	if err := c.arm(commandTime); err != nil {
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
	if errors.Is(err, bufio.ErrBufferFull) || err == nil && len(line) > maxLine {
		for errors.Is(err, bufio.ErrBufferFull) {
			_, err = c.br.ReadSlice('\n')
		}
		if err == nil {
			err = errLong
		}
	}
	if err != nil {
		return "", err
	}
	text, ok := bytes.CutSuffix(line, []byte("\r\n"))
	if !ok || bytes.IndexByte(text, '\r') >= 0 || bytes.IndexByte(text, 0) >= 0 {
		return "", errEnd
	}
	return string(text), nil
}

// write queues a reply.
func (c *conn) write(r reply) {
	if r.code != 0 {
		_, _ = c.bw.Write(r.append(c.bw.AvailableBuffer())) // an error stays in bw, and flush returns it
	}
}

func (c *conn) flush() error {
	if c.bw.Buffered() == 0 {
		return nil
	}
	_ = c.nc.SetWriteDeadline(time.Now().Add(writeTime))
	return c.bw.Flush()
}

// count ends a session that only makes mistakes, or nothing of use.
func (c *conn) count(r reply) reply {
	switch r.code {
	case 500, 501, 502, 503, 504, 530, 538, 555:
		c.bad++
	}
	if !c.closing && (c.bad > maxBad || c.dull > maxIdle || c.refused > maxRefused) {
		c.log.Info("a session was ended for too many mistakes", "bad", c.bad, "dull", c.dull, "refused", c.refused)
		c.closing = true
		return reply{421, "4.7.0", "Too many mistakes; goodbye"}
	}
	return r
}

// end gives the transaction up, or notes that it is done.
func (c *conn) end() { c.letter, c.until = nil, time.Time{} }

// secure does the TLS handshake.
func (c *conn) secure(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, handshakeTime)
	defer cancel()
	t := tls.Server(c.nc, c.srv.TLS)
	_ = c.nc.SetDeadline(time.Now().Add(handshakeTime)) // HandshakeContext ends the reads, this also the writes
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
		if err := c.armBlock(); err != nil {
			return err
		}
		m, err := c.br.Discard(int(min(n, readBuffer)))
		n -= int64(m)
		if err != nil {
			return noEOF(err)
		}
	}
	return nil
}

// armBlock is arm for some more of a message.
func (c *conn) armBlock() error {
	if c.br.Buffered() > 0 {
		return nil
	}
	if err := c.flush(); err != nil {
		return err
	}
	return c.arm(blockTime)
}

func noEOF(err error) error {
	if err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}

// accepted is the one line per message in the log.
func (c *conn) accepted(id db.ID, size int64) {
	e := c.letter.envelope
	attrs := []any{"id", id, "from", "", "recipients", len(c.letter.rcpts), "to", c.letter.rcpts[0], "size", size, "helo", c.helo, "tls", c.tls != nil}
	if e.From != nil {
		attrs[3] = e.From.String()
	}
	if c.user != nil {
		attrs = append(attrs, c.user.logAttr()...)
	}
	c.log.Info("message accepted", attrs...)
}
