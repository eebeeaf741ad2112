// SPDX-License-Identifier: Apache-2.0

// Package imapd is the IMAP door: IMAP4rev1 (RFC 3501) and IMAP4rev2 (RFC 9051)
// with the extensions that capability.go names, in front of the folders of a mailbox.
//
// A connection is one goroutine that reads a command, answers it and reads the
// next. It holds no lock and no cursor of the database while it writes to its
// client, and between commands nothing but a small read buffer. What other
// sessions change is announced after each command and during IDLE, never in
// the middle of an answer.
package imapd

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/mailstead/mailstead/internal/blob"
	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/folder"
	"github.com/mailstead/mailstead/internal/imapd/wire"
	"github.com/mailstead/mailstead/internal/mailbox"
	"github.com/mailstead/mailstead/internal/notify"
	"github.com/mailstead/mailstead/internal/ratelimit"
)

// MaxMessageBytes is the largest message that APPEND takes, in bytes: as much as
// may come by SMTP.
const MaxMessageBytes = 50 << 20

// Options are what the door works with.
type Options struct {
	Host        string      // the service's name, for the greeting
	TLS         *tls.Config // of both listeners
	Mailboxes   *mailbox.Mailboxes
	Folders     *folder.Store
	Blobs       *blob.Store
	ConnLimiter *ratelimit.ConnLimiter // counts the connections of this door
	Log         *slog.Logger
	Now         func() time.Time
	Timeouts    Timeouts // zero fields have their defaults
	// DisableUnauthenticate takes UNAUTHENTICATE away, which RFC 8437 §8 wants to be
	// possible: a proxy may look no further than the first log-in.
	DisableUnauthenticate bool
	// OnJunk, if set, is told which messages that were sent from here a person
	// has just put into the folder for junk of a mailbox.
	OnJunk func(ctx context.Context, mailbox db.ID, sent []db.ID) error
	// OnCopy, if set, is told which messages a person has just copied or moved
	// to another folder of a mailbox.
	OnCopy func(ctx context.Context, mailbox db.ID, c *folder.CopyResult) error
}

// Timeouts say how long a client may take.
type Timeouts struct {
	Login   time.Duration // from connecting to a login, all in all; 1 min
	Idle    time.Duration // between commands and within IDLE; 30 min (RFC 3501 §5.4)
	Command time.Duration // between the bytes of a command; 1 min
	Write   time.Duration // to take 64 KiB of an answer; 1 min
}

// Server is the door. It is made by New.
type Server struct {
	Options
	writeBuffers wire.BufferPool
	deflaters    wire.DeflaterPool
	copyBuffers  sync.Pool // *[]byte of copyBufferSize
	bodySearches searchSemaphore
	base         context.Context
	cancel       context.CancelFunc

	mu           sync.Mutex
	draining     bool
	listeners    map[net.Listener]bool
	sessions     map[*session]bool
	sessionsDone sync.WaitGroup
	lastID       uint64
}

// New returns a Server that listens nowhere yet.
func New(o Options) *Server {
	t := &o.Timeouts
	for _, d := range []struct {
		field *time.Duration
		value time.Duration
	}{
		{&t.Login, time.Minute}, {&t.Idle, 30 * time.Minute}, {&t.Command, time.Minute}, {&t.Write, time.Minute},
	} {
		if *d.field == 0 {
			*d.field = d.value
		}
	}
	s := &Server{Options: o, listeners: map[net.Listener]bool{}, sessions: map[*session]bool{}}
	s.base, s.cancel = context.WithCancel(context.Background())
	return s
}

// Serve takes connections of port 143, where STARTTLS comes before a login,
// until Shutdown, when it returns nil, or until l fails.
func (s *Server) Serve(l net.Listener) error { return s.serve(l, false) }

// ServeTLS takes connections of port 993, which begin with TLS (RFC 8314).
func (s *Server) ServeTLS(l net.Listener) error { return s.serve(l, true) }

func (s *Server) serve(l net.Listener, implicit bool) error {
	if !s.addListener(l) {
		return l.Close()
	}
	pause := time.Duration(0)
	for {
		nc, err := l.Accept()
		if err == nil {
			pause = 0
			s.startSession(nc, implicit)
			continue
		}
		if s.isDraining() {
			return nil
		}
		var temporary net.Error
		if !errors.As(err, &temporary) || errors.Is(err, net.ErrClosed) {
			return err
		}
		// Out of file descriptors, most likely: some come back.
		pause = min(max(2*pause, 5*time.Millisecond), time.Second)
		s.Log.Warn("imap: accepting a connection", "err", err)
		_ = notify.Sleep(s.base, pause)
	}
}

// addListener notes l, unless the server is going down.
func (s *Server) addListener(l net.Listener) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.listeners[l] = true
	return !s.draining
}

func (s *Server) isDraining() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.draining
}

func (s *Server) startSession(nc net.Conn, implicit bool) {
	remote := remoteAddr(nc)
	release, ok := s.ConnLimiter.Acquire(remote)
	if !ok {
		s.Log.Info("imap: too many connections", "remote", remote)
		if !implicit {
			nc.SetWriteDeadline(time.Now().Add(time.Second))
			_, _ = nc.Write([]byte("* BYE [UNAVAILABLE] Too many connections at once.\r\n"))
		}
		_ = nc.Close()
		return
	}
	c := newSession(s, nc, remote)
	if !s.addSession(c) {
		release()
		_ = nc.Close()
		return
	}
	go func() {
		defer s.sessionsDone.Done()
		defer release()
		defer s.removeSession(c)
		c.serveConn(implicit)
	}()
}

// addSession counts a session in, unless the server is going down.
func (s *Server) addSession(c *session) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.draining {
		return false
	}
	s.lastID++
	c.id = s.lastID
	s.sessions[c] = true
	s.sessionsDone.Add(1)
	return true
}

func (s *Server) removeSession(c *session) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.sessions, c)
}

// Shutdown takes no more connections, lets each session finish the command in
// hand and says BYE. When ctx ends it breaks off those that are left. It
// returns once all sessions have ended, with ctx's error if some were broken
// off.
func (s *Server) Shutdown(ctx context.Context) error {
	s.mu.Lock()
	s.draining = true
	for l := range s.listeners {
		_ = l.Close()
	}
	for c := range s.sessions {
		c.stream.wake()
	}
	s.mu.Unlock()
	defer s.cancel()

	ended := make(chan struct{})
	go func() {
		s.sessionsDone.Wait()
		close(ended)
	}()
	select {
	case <-ended:
		return nil
	case <-ctx.Done():
	}
	s.cancel()
	s.mu.Lock()
	for c := range s.sessions {
		_ = c.stream.tcp.Close()
	}
	s.mu.Unlock()
	<-ended
	return ctx.Err()
}

// RecheckLogins makes the sessions of a mailbox, or all when it is 0, look whether
// the log-ins that they stand on still count; those that don't end with BYE.
func (s *Server) RecheckLogins(mailbox db.ID) {
	s.recheckSessions(func(u *sessionOwner) bool { return mailbox == 0 || u.mailbox == mailbox })
}

// RecheckSuspended is Revoked for the mailboxes of accounts and of domains.
func (s *Server) RecheckSuspended(accounts, domains map[db.ID]bool) {
	s.recheckSessions(func(u *sessionOwner) bool { return accounts[u.account] || domains[u.domain] })
}

// sessionOwner is whose session it is.
type sessionOwner struct{ mailbox, account, domain db.ID }

// recheckSessions makes the sessions of some users look whether their log-ins still count.
func (s *Server) recheckSessions(of func(*sessionOwner) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.sessions {
		if u := c.user.Load(); u != nil && of(u) {
			c.needsLoginCheck.Store(true)
			c.stream.wake()
		}
	}
}

// remoteAddr returns the client's IP address, the zero one if it has none.
func remoteAddr(nc net.Conn) netip.Addr {
	if a, ok := nc.RemoteAddr().(*net.TCPAddr); ok {
		return a.AddrPort().Addr().Unmap()
	}
	return netip.Addr{}
}
