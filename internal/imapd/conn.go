// SPDX-License-Identifier: Apache-2.0

package imapd

import (
	"bufio"
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"runtime/debug"
	"sync/atomic"
	"time"

	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/imapd/wire"
)

// Number of invalid commands allowed: before login in total, including wrong passwords; afterwards
// in a row.
const (
	maxErrorsBeforeLogin = 4
	maxErrorsAfterLogin  = 50
)

// readBufferSize is the buffer of an idle connection; longer reads bypass it.
const readBufferSize = 2 << 10

// session is one connection and its state.
type session struct {
	*Server
	id         uint64
	remote     netip.Addr
	stream     stream
	r          *wire.Reader
	w          *wire.Writer
	isTLS      bool // whether the connection uses TLS
	tag        string
	closing    bool   // whether the connection ends after this command
	compressed bool   // whether COMPRESS is active
	clientName string // name that the client sent with ID

	user            atomic.Pointer[sessionOwner] // of login, for Sessions.recheck; nil before
	needsLoginCheck atomic.Bool                  // whether the login may have ended
	errorCount      int
	sessionState
}

func newSession(server *Server, nc net.Conn, remote netip.Addr) *session {
	s := &session{Server: server, remote: remote}
	s.stream = stream{tcp: nc, conn: nc, readTimeout: server.Timeouts.Command, writeTimeout: server.Timeouts.Write,
		readDeadline: time.Now().Add(server.Timeouts.Login)}
	s.w = wire.NewWriter(&s.stream, &server.writeBuffers)
	s.stream.flush = s.w.Flush
	s.r = wire.NewReader(bufio.NewReaderSize(&s.stream, readBufferSize), s.w.Continue)
	return s
}

// serveConn serves the client until one side ends the connection.
func (s *session) serveConn(implicit bool) {
	// A bug must end only one session.
	defer func() {
		if p := recover(); p != nil {
			s.logger().Error("imap: session panicked", "panic", p, "stack", string(debug.Stack()))
		}
		s.closeView()
		s.Mailboxes.CloseSession(s.sessionID)
		_ = s.stream.conn.Close()
	}()
	if implicit {
		if err := s.startTLS(s.TLS); err != nil {
			s.logger().Debug("imap: TLS failed", "err", err)
			return
		}
	}
	s.w.Untagged(wire.OK, wire.CodeCapability(s.capabilities()...), s.Host+" is ready.")
	// Send the pending responses even if reading from the client has failed.
	if err := cmp.Or(s.serveCommands(), s.w.Flush()); err != nil {
		s.logger().Debug("imap: connection ended", "err", err)
	}
}

// startTLS switches to TLS once the handshake is done.
func (s *session) startTLS(c *tls.Config) error {
	ctx, cancel := context.WithDeadline(s.base, s.stream.readDeadline)
	defer cancel()
	nc := tls.Server(s.stream.tcp, c)
	if err := nc.HandshakeContext(ctx); err != nil {
		return err
	}
	s.stream.upgrade(nc)
	s.isTLS = true
	return nil
}

// serveCommands reads and answers commands. It returns nil when the session has ended normally.
func (s *session) serveCommands() error {
	for !s.closing {
		if s.isDraining() {
			s.w.Untagged(wire.Bye, "", "The server is going down.")
			return nil
		}
		if err := s.checkLogin(); err != nil {
			return s.writeError(err)
		}
		switch err := s.waitCommand(); {
		case errors.Is(err, errWoken):
			continue
		case errors.Is(err, os.ErrDeadlineExceeded):
			s.w.Untagged(wire.Bye, "", "You have been silent for too long.")
			return nil
		case err != nil:
			s.tag = ""
			if err := s.writeError(err); err != nil {
				return err
			}
			continue
		}
		if err := s.checkSuspended(); err != nil {
			return s.writeError(err)
		}
		if err := s.serveCommand(); err != nil {
			return err
		}
	}
	return nil
}

// checkLogin returns a BYE when the session's login has ended.
func (s *session) checkLogin() error {
	_, err := s.checkLoginIfKnown()
	return err
}

// checkLoginIfKnown is checkLogin, but told is false if the database can't be asked now.
func (s *session) checkLoginIfKnown() (told bool, err error) {
	if s.mailboxID == 0 || !s.needsLoginCheck.Swap(false) {
		return true, nil
	}
	err = s.Mailboxes.CheckLogin(s.ctx(), s.mailbox)
	switch {
	case fault.Is(err, fault.Unauthenticated):
		return true, s.loginEndedError()
	case err != nil:
		s.needsLoginCheck.Store(true) // unknown now; every command checks again
		s.logger().Error("imap: whether a log-in still counts could not be found out", "err", err)
	}
	return err == nil, nil
}

// checkSuspended returns a BYE when the mailbox's account or domain is suspended. Sessions.Run
// wakes idling sessions. If the database can't tell now, the command can't do anything either.
func (s *session) checkSuspended() error {
	if s.mailboxID != 0 && fault.Is(s.Mailboxes.CheckActive(s.ctx(), s.mailbox), fault.Unauthenticated) {
		return s.loginEndedError()
	}
	return nil
}

func (s *session) loginEndedError() error {
	s.tag = ""
	return &wire.Error{Status: wire.Bye, Text: "Your log-in has ended. Please sign in again."}
}

// waitCommand waits for the next command and holds only the read buffer.
func (s *session) waitCommand() error {
	if s.r.Buffered() > 0 {
		return nil
	}
	if err := s.r.Skip(); err != nil {
		return err
	}
	if s.mailboxID != 0 {
		s.stream.readTimeout = s.Timeouts.Idle
		defer func() { s.stream.readTimeout = s.Timeouts.Command }()
	}
	return s.stream.await(s.r.Await)
}

// serveCommand reads and answers one command. An error ends the connection.
func (s *session) serveCommand() error {
	tag, cmd, err := s.r.ReadCommand()
	s.tag = tag
	if err == nil {
		err = s.checkLogin()
	}
	if err != nil {
		return s.writeError(err)
	}
	code, err := s.dispatch(cmd)
	var refused *wire.Error
	if err != nil && !errors.As(err, &refused) {
		var gone *connError
		if errors.As(err, &gone) {
			return s.writeError(gone.error)
		}
		if s.w.Err() != nil {
			return s.w.Err()
		}
		refused = s.wireError(cmd, err)
	}
	if refused == nil && !isSelect(cmd) && !s.wroteTagged || refused != nil && refused.Status == wire.No {
		// Also after a NO: the changes may be why the command failed.
		if err := s.writeChanges(mayExpunge(cmd)); err != nil {
			s.closeUnreadable(cmd, err)
			return nil
		}
	}
	if refused != nil {
		return s.writeError(refused)
	}
	if s.mailboxID != 0 {
		s.errorCount = 0
	}
	if !s.wroteTagged {
		s.w.Tagged(tag, wire.OK, cmp.Or(code, s.searchCode(cmd)), cmd.Name()+" completed.")
	}
	s.wroteTagged = false
	return s.w.Err()
}

// closeUnreadable ends a session that can't follow its folder any more, most likely because another
// session has deleted it (RFC 2180 §3.3).
func (s *session) closeUnreadable(cmd wire.Command, err error) {
	if refused := s.wireError(cmd, err); refused.Code == wire.CodeNonExistent {
		s.w.Untagged(wire.Bye, "", "The mailbox that was open is deleted.")
	} else {
		s.w.Untagged(wire.Bye, refused.Code, "The mailbox cannot be read now. Please connect again.")
	}
	s.closeView()
	s.closing = true
}

// writeError writes a *wire.Error; any other error ends the connection.
func (s *session) writeError(err error) error {
	var refused *wire.Error
	if !errors.As(err, &refused) {
		if errors.Is(err, os.ErrDeadlineExceeded) {
			s.w.Untagged(wire.Bye, "", "You have been silent for too long.")
			s.closing = true
			return nil
		}
		return err
	}
	if refused.ClearsSaved {
		s.savedUIDs = nil
	}
	s.w.Refuse(s.tag, refused)
	s.closing = s.closing || refused.Status == wire.Bye
	most := maxErrorsAfterLogin
	if s.mailboxID == 0 {
		most = maxErrorsBeforeLogin
	}
	if refused.Status == wire.Bad || s.mailboxID == 0 {
		s.errorCount++
	}
	if s.errorCount >= most && !s.closing {
		s.w.Untagged(wire.Bye, "", "Too many commands went wrong.")
		s.closing = true
	}
	return s.w.Err()
}

// ctx returns the context of the current command.
func (s *session) ctx() context.Context { return s.base }

func (s *session) logger() *slog.Logger {
	l := s.Log.With("session", s.id, "remote", s.remote)
	if s.mailboxID != 0 {
		l = l.With("mailbox", s.mailboxID)
	}
	return l
}

// bad returns a BAD response for a command that the client should not have sent.
func bad(format string, args ...any) *wire.Error {
	return &wire.Error{Status: wire.Bad, Text: fmt.Sprintf(format, args...)}
}

// no returns a NO response for a command that can't be done.
func no(code wire.Code, text string) *wire.Error {
	return &wire.Error{Status: wire.No, Code: code, Text: text}
}
