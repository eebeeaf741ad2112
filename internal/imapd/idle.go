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
	time.AfterFunc(idleRetryInterval, s.stream.wake)
	return nil
}

const (
	// idleRecheckDelay is the delay after a signal after which an idling session checks its folder
	// once more: a signal may come a moment before the node's view has the change.
	idleRecheckDelay = 10 * time.Millisecond
	// idleRetryInterval is how often a session tries to read its folder after that failed.
	idleRetryInterval = 5 * time.Second
)

// wakeOnChange wakes the session whenever its folder may have changed, until stop is called.
func (s *session) wakeOnChange() (stop func()) {
	changed, ended := s.view.Changed(), make(chan struct{})
	go func() {
		recheck := time.NewTimer(idleRecheckDelay)
		defer recheck.Stop()
		for {
			select {
			case <-changed:
				recheck.Reset(idleRecheckDelay)
			case <-recheck.C:
			case <-ended:
				return
			}
			s.stream.wake()
		}
	}()
	return func() { close(ended) }
}
