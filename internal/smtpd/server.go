// SPDX-License-Identifier: Apache-2.0

// Package smtpd takes mail by SMTP: on port 25 from other hosts for the
// domains here (MX), and on 587 and 465 from the mailboxes here (submission).
// It speaks the protocol and keeps its limits; who may receive, and what
// becomes of a message, is the Backend's to say.
//
// The loop is our own since a reply shall go out with those of the commands
// that were pipelined with it, in one packet; a long line of a message is no
// reason to hang up; and each of the limits below needs its own answer.
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

// Mode is which kind of door a server is.
type Mode int

// The modes.
const (
	MX          Mode = iota // port 25: anyone, for domains here
	Submission              // 587: mailboxes here; STARTTLS, then AUTH
	Submissions             // 465: the same, TLS from the first octet
)

// Backend is what stands behind a door: inbound on MX, outbound on submission.
type Backend interface {
	// Begin judges MAIL FROM and begins a transaction.
	Begin(ctx context.Context, e Envelope) (Transaction, error)
}

// Transaction is one message on its way in. Its errors are faults that the
// client is told of; any other is ours.
type Transaction interface {
	// Recipient judges RCPT TO. An address without a domain is postmaster.
	// What is wanted of reports is nothing on MX.
	Recipient(ctx context.Context, to address.Address, wants RcptOptions) error
	// Message takes the message, which it reads to its end, and returns once
	// it is committed. r lacks the id and the time. The id is for the log and
	// the client.
	Message(ctx context.Context, r message.Received, body io.Reader) (db.ID, error)
}

// Envelope is what is known of a message at MAIL FROM.
type Envelope struct {
	From     *address.Address // nil: the null sender
	Size     int64            // as the client declared it; 0 if it did not
	ClientIP netip.Addr
	Helo     string
	TLS      bool
	// Who submits is a mailbox or a program with an API key; the other one,
	// and on MX both, are zero.
	Mailbox   mailbox.Mailbox
	Principal account.Principal
	Ret       string // RET of RFC 3461: "FULL", "HDRS" or ""
	EnvID     string // ENVID, decoded; "" for none
	// RequireTLS: the message goes only to hosts that prove who they are and
	// promise the same (RFC 8689).
	RequireTLS bool
}

// Server is one door. Fields are set before Serve.
type Server struct {
	Mode        Mode
	Host        string // our name in the greeting
	Backend     Backend
	TLS         *tls.Config // nil: no TLS, and so no submission
	Mailboxes   *mailbox.Mailboxes
	Accounts    *account.Accounts // keys for the user "api"; nil: there is no such user
	Hub         *notify.Hub       // tells of log-ins that ended; with Mailboxes, for submission only
	ConnLimiter *ratelimit.ConnLimiter
	Log         *slog.Logger

	MaxSize       int64 // octets of a message; 0: 50 MiB
	MaxRecipients int   // of a transaction; 0: 100
	// GreetDelay is how long a client of MX must keep silent before our
	// greeting: who talks first is not a mail server. 0: no wait.
	GreetDelay time.Duration
	// ClientLimiter limits what each network may do on MX; nil: nothing does.
	ClientLimiter *ratelimit.ClientLimiter
	// SkipGreetDelay says who need not wait for the greeting; may be nil.
	SkipGreetDelay func(netip.Addr) bool

	mu        sync.Mutex
	draining  bool
	listeners map[net.Listener]struct{}
	conns     map[*conn]struct{}
	sessions  sync.WaitGroup
	ctx       context.Context // of all sessions
	cancel    context.CancelFunc
}

// Limits that are no one's to configure.
const (
	defaultMaxSize       = 50 << 20
	defaultMaxRecipients = 100

	maxLineLength     = 2048                   // of a command with its line end; RFC 5321 §4.5.3.1.4 asks for 512 and extensions
	maxBadCommands    = 20                     // commands that make no sense, in a session
	maxIdleCommands   = 200                    // commands that do nothing, between messages
	maxRejectedRcpts  = 50                     // recipients refused, in a session
	maxAuthFailures   = 5                      // failed log-ins, in a session
	maxReceivedFields = 100                    // Received fields, from which on a message goes round in circles (RFC 5321 §6.3: not fewer)
	commandTimeout    = 5 * time.Minute        // to send a command (RFC 5321 §4.5.3.2.7)
	blockTimeout      = 3 * time.Minute        // to send some more of a message
	messageTimeout    = 10 * time.Minute       // to send a message, and a second more …
	minMessageRate    = 1 << 10                // … for each so many octets of it
	writeTimeout      = time.Minute            // to take our replies
	handshakeTimeout  = 30 * time.Second       // for TLS
	rejectTimeout     = 200 * time.Millisecond // to take a refusal before any session
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

// Serve takes connections until Shutdown, and then returns nil. One server may
// serve several listeners.
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
		// Out of file descriptors, most likely: others will give some back.
		backoff = min(max(2*backoff, 5*time.Millisecond), time.Second)
		s.Log.Error("a connection could not be taken", "door", s.Mode.String(), "error", err)
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

// startSession serves a connection in a goroutine of its own, if the limits allow it.
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

// rejectConn refuses a connection in clear; on 465 the client will not read it,
// but it costs nothing to say.
func rejectConn(nc net.Conn, why string) {
	_ = nc.SetDeadline(time.Now().Add(rejectTimeout))
	_, _ = io.WriteString(nc, why)
	_ = nc.Close()
}

// Shutdown takes no new connections, lets sessions finish the transaction they
// are in, and ends the others with 421. When ctx ends it cuts off what is left
// and returns its error.
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
	if s.cancel != nil { // else it was never opened
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

// String names the mode in logs.
func (m Mode) String() string { return [...]string{"mx", "submission", "submissions"}[m] }

func remoteIP(nc net.Conn) netip.Addr {
	if a, ok := nc.RemoteAddr().(*net.TCPAddr); ok {
		return a.AddrPort().Addr().Unmap()
	}
	return netip.Addr{}
}
