// SPDX-License-Identifier: Apache-2.0

// Package imapd is the IMAP server: IMAP4rev1 (RFC 3501) and IMAP4rev2 (RFC 9051) with the
// extensions that capability.go lists, on top of package folder.
//
// Each connection has one goroutine that reads a command, answers it and reads the next. It holds
// no lock and no database cursor while it writes to its client. Between commands it holds only a
// small read buffer. It reports changes by other sessions after each command and during IDLE, never
// within a response.
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
	"github.com/mailstead/mailstead/internal/folder/search"
	"github.com/mailstead/mailstead/internal/imapd/wire"
	"github.com/mailstead/mailstead/internal/mailbox"
	"github.com/mailstead/mailstead/internal/notify"
	"github.com/mailstead/mailstead/internal/ratelimit"
)

// MaxMessageBytes is the largest message that APPEND accepts, in bytes: the same as for SMTP.
const MaxMessageBytes = 50 << 20

// Options are the dependencies and settings of a Server.
type Options struct {
	Host        string      // host name in the greeting
	TLS         *tls.Config // of both listeners
	Mailboxes   *mailbox.Mailboxes
	Folders     *folder.Folders
	Searcher    *search.Searcher
	Blobs       *blob.Store
	ConnLimiter *ratelimit.ConnLimiter // counts the connections of this server
	Sessions    *Sessions              // registry of this server's sessions
	Log         *slog.Logger
	Now         func() time.Time
	Timeouts    Timeouts // zero fields mean the defaults
	// DisableUnauthenticate disables UNAUTHENTICATE. RFC 8437 §8 requires this option: a proxy may
	// examine only the first login.
	DisableUnauthenticate bool
	// OnJunk, if not nil, is called with the outbound ids of messages that a user has just put into
	// a mailbox's junk folder.
	OnJunk func(ctx context.Context, mailbox db.ID, sent []db.ID) error
	// OnCopy, if not nil, is called after a user has copied or moved messages to another folder of
	// a mailbox.
	OnCopy func(ctx context.Context, mailbox db.ID, c *folder.CopyResult) error
}

// Timeouts limit how long a client may take.
type Timeouts struct {
	Login   time.Duration // from connecting to a login, in total; 1 min
	Idle    time.Duration // between commands and within IDLE; 30 min (RFC 3501 §5.4)
	Command time.Duration // between the bytes of a command; 1 min
	Write   time.Duration // to read 64 KiB of a response; 1 min
}

// Server is an IMAP server. Use New to create one.
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
	sessionsDone sync.WaitGroup
	lastID       uint64
}

// New returns a Server without listeners.
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
	s := &Server{Options: o, listeners: map[net.Listener]bool{}}
	s.base, s.cancel = context.WithCancel(context.Background())
	return s
}

// Serve accepts connections of port 143, where STARTTLS must precede a login. It returns nil after
// Shutdown, or an error if l fails.
func (s *Server) Serve(l net.Listener) error { return s.serve(l, false) }

// ServeTLS accepts connections of port 993, which start with TLS (RFC 8314).
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
		// Most likely out of file descriptors: some become free.
		pause = min(max(2*pause, 5*time.Millisecond), time.Second)
		s.Log.Warn("imap: accepting a connection", "err", err)
		_ = notify.Sleep(s.base, pause)
	}
}

// addListener registers l, unless the server is shutting down.
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
		defer s.Sessions.remove(c)
		c.serveConn(implicit)
	}()
}

// addSession registers a session, unless the server is shutting down.
func (s *Server) addSession(c *session) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.draining {
		return false
	}
	s.lastID++
	c.id = s.lastID
	s.Sessions.add(c)
	s.sessionsDone.Add(1)
	return true
}

// Shutdown stops accepting connections, lets each session finish its current command and sends BYE.
// When ctx ends it closes the remaining connections. It returns once all sessions have ended, with
// ctx's error if it closed any.
func (s *Server) Shutdown(ctx context.Context) error {
	s.mu.Lock()
	s.draining = true
	for l := range s.listeners {
		_ = l.Close()
	}
	s.Sessions.each(func(c *session) { c.stream.wake() })
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
	s.Sessions.each(func(c *session) { _ = c.stream.tcp.Close() })
	<-ended
	return ctx.Err()
}

// remoteAddr returns the client's IP address, or the zero Addr if it has none.
func remoteAddr(nc net.Conn) netip.Addr {
	if a, ok := nc.RemoteAddr().(*net.TCPAddr); ok {
		return a.AddrPort().Addr().Unmap()
	}
	return netip.Addr{}
}
