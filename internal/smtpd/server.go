// SPDX-License-Identifier: Apache-2.0

// Package smtpd is the SMTP server. On port 25 it receives mail from other hosts for the local
// domains (MX). On ports 587 and 465 it receives mail from the local mailboxes and from API keys
// (submission). It implements the protocol and its limits. The Backend decides who may receive a
// message, and what happens to it.
//
// The command loop is our own for three reasons. The replies to pipelined commands go out together,
// in one packet. A long line in a message does not end the session. Each of the limits below needs
// its own reply.
package smtpd

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/mailstead/mailstead/internal/account"
	"github.com/mailstead/mailstead/internal/address"
	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/mailbox"
	"github.com/mailstead/mailstead/internal/message"
	"github.com/mailstead/mailstead/internal/notify"
	"github.com/mailstead/mailstead/internal/ratelimit"
)

// Mode is the kind of a server.
type Mode int

// The modes.
const (
	MX            Mode = iota // port 25: from anyone to local domains
	Submission                // port 587: from local mailboxes; STARTTLS, then AUTH
	SubmissionTLS             // port 465: the same, with TLS from the first octet
)

// Backend handles the messages of a server: inbound on MX, outbound on submission.
type Backend interface {
	// Begin checks MAIL FROM and begins a transaction.
	Begin(ctx context.Context, e Envelope) (Transaction, error)
}

// Transaction is one message being received. The client sees its errors if they are faults; any
// other error is internal.
type Transaction interface {
	// AddRecipient checks RCPT TO. An address without a domain is postmaster. wants is zero on MX.
	AddRecipient(ctx context.Context, to address.Address, wants RcptOptions) error
	// ReceiveMessage receives the message. It reads body to the end, and returns once the message is
	// committed. r lacks the id and the time. The id is for the log and the client.
	ReceiveMessage(ctx context.Context, r message.ReceivedField, body io.Reader) (db.ID, error)
}

// Envelope is what is known about a message at MAIL FROM.
type Envelope struct {
	From     *address.Address // nil: the null sender
	Size     int64            // size that the client declared, in octets; 0: not declared
	ClientIP netip.Addr
	Helo     string
	TLS      bool
	// Mailbox or Principal (a program with an API key) is the submitter. The other one is zero; on
	// MX both are.
	Mailbox   mailbox.Mailbox
	Principal account.Principal
	Ret       string // RET (RFC 3461): "FULL", "HDRS" or ""
	EnvID     string // ENVID, decoded; "": not given
	// RequireTLS is set if the message may go only to hosts that prove their identity and announce
	// REQUIRETLS (RFC 8689).
	RequireTLS bool
}

// Server is an SMTP server of one Mode. Set its fields before Serve.
type Server struct {
	Mode        Mode
	Host        string // host name in the greeting
	Backend     Backend
	TLS         *tls.Config // nil: no TLS, and thus no submission
	Mailboxes   *mailbox.Mailboxes
	Accounts    *account.Accounts // API keys for the user "api"; nil: no such user
	Hub         *notify.Hub       // notifies of revoked logins; like Mailboxes, for submission only
	ConnLimiter *ratelimit.ConnLimiter
	Log         *slog.Logger

	MaxSize       int64 // maximum size of a message, in octets; 0: 50 MiB
	MaxRecipients int   // maximum number of recipients of a transaction; 0: 100
	// GreetDelay is how long an MX client must stay silent before our greeting: a client that sends
	// first is not a mail server. 0: no wait.
	GreetDelay time.Duration
	// ClientLimiter limits each network on MX; nil: no limits.
	ClientLimiter *ratelimit.ClientLimiter
	// SkipGreetDelay reports whether a client need not wait for the greeting; may be nil.
	SkipGreetDelay func(netip.Addr) bool

	mu        sync.Mutex
	draining  bool
	listeners map[net.Listener]struct{}
	conns     map[*conn]struct{}
	sessions  sync.WaitGroup
	ctx       context.Context // context of all sessions
	cancel    context.CancelFunc
}

// Fixed limits.
const (
	defaultMaxSize       = 50 << 20
	defaultMaxRecipients = 100

	maxLineLength     = 2048                   // octets of a command with its line end; RFC 5321 §4.5.3.1.4 requires 512 and extensions
	maxBadCommands    = 20                     // invalid commands in a session
	maxIdleCommands   = 200                    // commands without effect, between messages
	maxRejectedRcpts  = 50                     // rejected recipients in a session
	maxAuthFailures   = 5                      // failed logins in a session
	maxReceivedFields = 100                    // number of Received fields that means a mail loop (RFC 5321 §6.3: not fewer)
	commandTimeout    = 5 * time.Minute        // to send a command (RFC 5321 §4.5.3.2.7)
	blockTimeout      = 3 * time.Minute        // to send the next block of a message
	messageTimeout    = 10 * time.Minute       // to send a message, plus one second …
	minMessageRate    = 1 << 10                // … for each that many octets
	writeTimeout      = time.Minute            // to read our replies
	handshakeTimeout  = 30 * time.Second       // for TLS
	rejectTimeout     = 200 * time.Millisecond // to read a rejection before any session
)

func (s *Server) maxSize() int64 {
	if s.MaxSize > 0 {
		return s.MaxSize
	}
	return defaultMaxSize
}

func (s *Server) maxRecipients() int {
	if s.MaxRecipients > 0 {
		return s.MaxRecipients
	}
	return defaultMaxRecipients
}

// Serve accepts connections until Shutdown, and then returns nil. One server may serve several
// listeners.
func (s *Server) Serve(ln net.Listener) error {
	if !s.addListener(ln) {
		return ln.Close()
	}
	var backoff time.Duration
	for {
		nc, err := ln.Accept()
		if err == nil {
			backoff = 0
			s.startSession(nc)
			continue
		}
		s.mu.Lock()
		draining := s.draining
		s.mu.Unlock()
		if draining || errors.Is(err, net.ErrClosed) {
			return nil
		}
		// Probably out of file descriptors: wait until others are closed.
		backoff = min(max(2*backoff, 5*time.Millisecond), time.Second)
		s.Log.Error("a connection could not be accepted", "listener", s.Mode.String(), "error", err)
		time.Sleep(backoff)
	}
}

func (s *Server) addListener(ln net.Listener) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.draining {
		return false
	}
	if s.conns == nil {
		s.conns, s.listeners = map[*conn]struct{}{}, map[net.Listener]struct{}{}
		s.ctx, s.cancel = context.WithCancel(context.Background())
	}
	s.listeners[ln] = struct{}{}
	return true
}

// startSession serves a connection in its own goroutine, if the limits allow it.
func (s *Server) startSession(nc net.Conn) {
	ip := remoteIP(nc)
	release, ok := s.ConnLimiter.Acquire(ip)
	if !ok {
		go rejectConn(nc, "421 4.7.0 Too many connections; try again later.\r\n")
		return
	}
	c := newConn(s, nc, ip)
	s.mu.Lock()
	if s.draining {
		s.mu.Unlock()
		release()
		go rejectConn(nc, "421 4.3.2 The service is shutting down.\r\n")
		return
	}
	s.conns[c] = struct{}{}
	s.sessions.Add(1)
	s.mu.Unlock()
	go func() {
		defer s.sessions.Done()
		defer release()
		c.run(s.ctx)
		s.mu.Lock()
		delete(s.conns, c)
		s.mu.Unlock()
	}()
}

// rejectConn rejects a connection, in clear. On port 465 the client won't understand it, but
// sending it is cheap.
func rejectConn(nc net.Conn, why string) {
	_ = nc.SetDeadline(time.Now().Add(rejectTimeout))
	_, _ = io.WriteString(nc, why)
	_ = nc.Close()
}

// Shutdown accepts no more connections, lets sessions finish their current transaction, and ends
// the others with 421. When ctx ends, it closes the remaining connections and returns the context's
// error.
func (s *Server) Shutdown(ctx context.Context) error {
	s.mu.Lock()
	s.draining = true
	for ln := range s.listeners {
		_ = ln.Close()
	}
	for c := range s.conns {
		c.interrupt()
	}
	s.mu.Unlock()
	done := make(chan struct{})
	go func() {
		s.sessions.Wait()
		close(done)
	}()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
	}
	s.mu.Lock()
	if s.cancel != nil { // else it was never started
		s.cancel()
	}
	for c := range s.conns {
		c.closeConn()
	}
	s.mu.Unlock()
	<-done
	return ctx.Err()
}

func (s *Server) isDraining() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.draining
}

// String returns the mode's name for logs.
func (m Mode) String() string { return [...]string{"mx", "submission", "submissions"}[m] }

func remoteIP(nc net.Conn) netip.Addr {
	if a, ok := nc.RemoteAddr().(*net.TCPAddr); ok {
		return a.AddrPort().Addr().Unmap()
	}
	return netip.Addr{}
}
