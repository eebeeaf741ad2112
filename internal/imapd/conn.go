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

// How many commands a client may get wrong: before login all in all, with the
// wrong passwords, afterwards in a row.
const (
	mistakesBeforeLogin = 4
	mistakesAfterLogin  = 50
)

// readBuffer is what an idle connection keeps; longer reads pass it by.
const readBuffer = 2 << 10

// session is one connection and its state.
type session struct {
	*Server
	id         uint64
	remote     netip.Addr
	stream     stream
	r          *wire.Reader
	w          *wire.Writer
	secure     bool // over TLS
	tag        string
	done       bool   // the connection ends after this command
	compressed bool   // by COMPRESS
	program    string // what the client calls itself

	user     atomic.Pointer[user] // of login, for Revoked and Suspended; nil before
	doubted  atomic.Bool          // the log-in may have ended
	mistakes int
	state
}

func newSession(server *Server, nc net.Conn, remote netip.Addr) *session {
	s := &session{Server: server, remote: remote}
	s.stream = stream{raw: nc, nc: nc, read: server.Timeouts.Command, write: server.Timeouts.Write,
		until: time.Now().Add(server.Timeouts.Login)}
	s.w = wire.NewWriter(&s.stream, &server.buffers)
	s.stream.flush = s.w.Flush
	s.r = wire.NewReader(bufio.NewReaderSize(&s.stream, readBuffer), s.w.Continue)
	return s
}

// serve speaks with the client until one of the two ends it.
func (s *session) serve(implicit bool) {
	// A mistake of ours ends one session, not everybody's.
	defer func() {
		if p := recover(); p != nil {
			s.logger().Error("imap: session panicked", "panic", p, "stack", string(debug.Stack()))
		}
		s.closeView()
		s.Mailboxes.Closed(s.listed)
		_ = s.stream.nc.Close()
	}()
	if implicit {
		if err := s.startTLS(s.TLS); err != nil {
			s.logger().Debug("imap: TLS failed", "err", err)
			return
		}
	}
	s.w.Untagged(wire.OK, wire.Capabilities(s.capabilities()...), s.Host+" is ready.")
	// What was answered goes out though the client's stream has broken behind it.
	if err := cmp.Or(s.loop(), s.w.Flush()); err != nil {
		s.logger().Debug("imap: connection ended", "err", err)
	}
}

// startTLS goes on over TLS once the handshake is done.
func (s *session) startTLS(c *tls.Config) error {
	ctx, cancel := context.WithDeadline(s.base, s.stream.until)
	defer cancel()
	nc := tls.Server(s.stream.raw, c)
	if err := nc.HandshakeContext(ctx); err != nil {
		return err
	}
	s.stream.upgrade(nc)
	s.secure = true
	return nil
}

// loop reads and answers commands. It returns nil when the last word was said.
func (s *session) loop() error {
	for !s.done {
		if s.isDraining() {
			s.w.Untagged(wire.Bye, "", "The server is going down.")
			return nil
		}
		if err := s.current(); err != nil {
			return s.refuse(err)
		}
		switch err := s.await(); {
		case errors.Is(err, errWoken):
			continue
		case errors.Is(err, os.ErrDeadlineExceeded):
			s.w.Untagged(wire.Bye, "", "You have been silent for too long.")
			return nil
		case err != nil:
			s.tag = ""
			if err := s.refuse(err); err != nil {
				return err
			}
			continue
		}
		if err := s.served(); err != nil {
			return s.refuse(err)
		}
		if err := s.command(); err != nil {
			return err
		}
	}
	return nil
}

// current is a BYE when the log-in that the session stands on has ended.
func (s *session) current() error {
	_, err := s.sure()
	return err
}

// sure is current, and false while nobody can tell.
func (s *session) sure() (told bool, err error) {
	if s.box == 0 || !s.doubted.Swap(false) {
		return true, nil
	}
	err = s.Mailboxes.Current(s.ctx(), s.login)
	switch {
	case fault.Is(err, fault.Unknown):
		return true, s.revoked()
	case err != nil:
		s.doubted.Store(true) // nobody can tell now; every command asks again
		s.logger().Error("imap: whether a log-in still counts could not be found out", "err", err)
	}
	return err == nil, nil
}

// served is a BYE when the account or the domain of the mailbox is suspended. Who
// idles is told by Suspended. If nobody can tell now, neither can the command.
func (s *session) served() error {
	if s.box != 0 && fault.Is(s.Mailboxes.Served(s.ctx(), s.login), fault.Unknown) {
		return s.revoked()
	}
	return nil
}

func (s *session) revoked() error {
	s.tag = ""
	return &wire.Error{Status: wire.Bye, Text: "Your log-in has ended. Please sign in again."}
}

// await waits for the next command without holding more than the read buffer.
func (s *session) await() error {
	if s.r.Buffered() > 0 {
		return nil
	}
	if err := s.r.Skip(); err != nil {
		return err
	}
	if s.box != 0 {
		s.stream.read = s.Timeouts.Idle
		defer func() { s.stream.read = s.Timeouts.Command }()
	}
	return s.stream.await(s.r.Await)
}

// command reads and answers one command. An error ends the connection.
func (s *session) command() error {
	tag, cmd, err := s.r.ReadCommand()
	s.tag = tag
	if err == nil {
		err = s.current()
	}
	if err != nil {
		return s.refuse(err)
	}
	code, err := s.run(cmd)
	var refused *wire.Error
	if err != nil && !errors.As(err, &refused) {
		var gone *lostError
		if errors.As(err, &gone) {
			return s.refuse(gone.error)
		}
		if s.w.Err() != nil {
			return s.w.Err()
		}
		refused = s.translate(cmd, err)
	}
	if refused == nil && !selects(cmd) && !s.answered || refused != nil && refused.Status == wire.No {
		// Also after a NO: a command may fail because of what is announced.
		if err := s.announce(mayExpunge(cmd)); err != nil {
			s.farewell(cmd, err)
			return nil
		}
	}
	if refused != nil {
		return s.refuse(refused)
	}
	if s.box != 0 {
		s.mistakes = 0
	}
	if !s.answered {
		s.w.Tagged(tag, wire.OK, cmp.Or(code, s.leftOut(cmd)), cmd.Name()+" completed.")
	}
	s.answered = false
	return s.w.Err()
}

// farewell ends a session that cannot follow its folder any more, most likely
// because another has deleted it (RFC 2180 §3.3).
func (s *session) farewell(cmd wire.Command, err error) {
	if refused := s.translate(cmd, err); refused.Code == wire.CodeNonExistent {
		s.w.Untagged(wire.Bye, "", "The mailbox that was open is deleted.")
	} else {
		s.w.Untagged(wire.Bye, refused.Code, "The mailbox cannot be read now. Please connect again.")
	}
	s.closeView()
	s.done = true
}

// refuse answers with a *wire.Error; any other error ends the connection.
func (s *session) refuse(err error) error {
	var refused *wire.Error
	if !errors.As(err, &refused) {
		if errors.Is(err, os.ErrDeadlineExceeded) {
			s.w.Untagged(wire.Bye, "", "You have been silent for too long.")
			s.done = true
			return nil
		}
		return err
	}
	if refused.Unsaves {
		s.saved = nil
	}
	s.w.Refuse(s.tag, refused)
	s.done = s.done || refused.Status == wire.Bye
	most := mistakesAfterLogin
	if s.box == 0 {
		most = mistakesBeforeLogin
	}
	if refused.Status == wire.Bad || s.box == 0 {
		s.mistakes++
	}
	if s.mistakes >= most && !s.done {
		s.w.Untagged(wire.Bye, "", "Too many commands went wrong.")
		s.done = true
	}
	return s.w.Err()
}

// ctx is the context of the command in hand.
func (s *session) ctx() context.Context { return s.base }

func (s *session) logger() *slog.Logger {
	l := s.Log.With("session", s.id, "remote", s.remote)
	if s.box != 0 {
		l = l.With("mailbox", s.box)
	}
	return l
}

// bad is the refusal of a command that its client should not have sent.
func bad(format string, args ...any) *wire.Error {
	return &wire.Error{Status: wire.Bad, Text: fmt.Sprintf(format, args...)}
}

// no is the refusal of a command that cannot be done.
func no(code wire.Code, text string) *wire.Error {
	return &wire.Error{Status: wire.No, Code: code, Text: text}
}
