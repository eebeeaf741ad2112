// SPDX-License-Identifier: Apache-2.0

package imapd

import (
	"context"
	"errors"
	"time"

	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/imapd/wire"
)

// idle is IDLE (RFC 2177). The session's goroutine waits for DONE and holds
// nothing but the read buffer; a small one beside it wakes it when the folder
// changes.
func (s *session) idle() (wire.Code, error) {
	if err := s.w.Continue("Waiting for changes."); err != nil {
		return "", err
	}
	s.stream.readDeadline = time.Now().Add(s.Timeouts.Idle)
	defer func() { s.stream.readDeadline = time.Time{} }()
	if s.view != nil {
		stop := s.wakeOnChange()
		defer stop()
	}
	var blind time.Time
	for {
		if s.isDraining() {
			return "", &wire.Error{Status: wire.Bye, Text: "The server is going down."}
		}
		if err := s.checkLogin(); err != nil {
			return "", err
		}
		if err := s.tolerateIdleError(s.writeChanges(true), &blind); err != nil {
			return "", err
		}
		if err := s.waitCommand(); err == nil {
			break
		} else if !errors.Is(err, errWoken) {
			return "", wrapConnError(err)
		}
	}
	return "", wrapConnError(s.r.ReadDone())
}

// maxIdleReadFailure is for how long an idling session may have a folder that can't be read,
// as while PostgreSQL restarts or another takes its place: a client that was sent
// away could not sign in again before.
const maxIdleReadFailure = 2 * time.Minute

// tolerateIdleError returns what ends an IDLE: that the folder is gone, or that it can't be
// read, if it could not for too long. It keeps in blind since when that is so; what
// is missed meanwhile is told later.
func (s *session) tolerateIdleError(err error, blind *time.Time) error {
	var gone *connError
	switch {
	case err == nil:
		*blind = time.Time{}
		return nil
	case errors.As(err, &gone), fault.Is(err, fault.NotFound), errors.Is(err, context.Canceled):
		return err
	case blind.IsZero():
		*blind = s.Now()
		s.logger().Error("imap: a session that idles can't read its folder", "folder", s.view.Folder().ID, "err", err)
	}
	if s.Now().Sub(*blind) > maxIdleReadFailure {
		return err
	}
	return nil
}

// How long after a signal, and how often without one, an idling session looks
// at its folder. A signal may come a moment before the node's view shows the
// change, and one of another node may get lost.
const (
	idleRecheckDelay = 10 * time.Millisecond
	idlePollInterval = 5 * time.Second
)

// wakeOnChange wakes the session whenever its folder may have changed, until
// stop is called.
func (s *session) wakeOnChange() (stop func()) {
	changed, ended := s.view.Updates(), make(chan struct{})
	go func() {
		timer := time.NewTimer(idlePollInterval)
		defer timer.Stop()
		for {
			next := idlePollInterval
			select {
			case <-changed:
				next = idleRecheckDelay
			case <-timer.C:
			case <-ended:
				return
			}
			timer.Reset(next)
			s.stream.wake()
		}
	}()
	return func() { close(ended) }
}
