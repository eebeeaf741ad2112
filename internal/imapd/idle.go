// SPDX-License-Identifier: Apache-2.0

package imapd

import (
	"context"
	"errors"
	"time"

	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/imapd/wire"
)

// idle handles IDLE (RFC 2177). The session's goroutine waits for DONE and holds only the read
// buffer. A small second goroutine wakes it when the folder changes.
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

// maxIdleReadFailure is how long an idling session tolerates that its folder can't be read, as
// while PostgreSQL restarts or fails over: a disconnected client could not log in again earlier.
const maxIdleReadFailure = 2 * time.Minute

// tolerateIdleError returns an error if IDLE must end: the folder is gone, or it has been
// unreadable for too long. blind stores since when it is unreadable. Missed changes are reported
// later.
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

// Delay after a signal, and interval without one, after which an idling session checks its folder.
// A signal may come a moment before the node's view has the change, and one of another node may get
// lost.
const (
	idleRecheckDelay = 10 * time.Millisecond
	idlePollInterval = 5 * time.Second
)

// wakeOnChange wakes the session whenever its folder may have changed, until stop is called.
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
