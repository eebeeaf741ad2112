// SPDX-License-Identifier: Apache-2.0

package imapd

import (
	"errors"
	"time"

	"github.com/mailstead/mailstead/internal/imapd/wire"
)

// idle is IDLE (RFC 2177). The session's goroutine waits for DONE and holds
// nothing but the read buffer; a small one beside it wakes it when the folder
// changes.
func (s *session) idle() (wire.Code, error) {
	if err := s.w.Continue("Waiting for changes."); err != nil {
		return "", err
	}
	s.stream.until = time.Now().Add(s.Timeouts.Idle)
	defer func() { s.stream.until = time.Time{} }()
	if s.view != nil {
		stop := s.wakeOnChange()
		defer stop()
	}
	for {
		if s.isDraining() {
			return "", &wire.Error{Status: wire.Bye, Text: "The server is going down."}
		}
		if err := s.announce(true); err != nil {
			return "", err
		}
		if err := s.await(); err == nil {
			break
		} else if !errors.Is(err, errWoken) {
			return "", lost(err)
		}
	}
	return "", lost(s.r.ReadDone())
}

// wakeOnChange wakes the session whenever its folder has changed, until stop
// is called.
func (s *session) wakeOnChange() (stop func()) {
	changed, ended := s.view.Wait(), make(chan struct{})
	go func() {
		for {
			select {
			case <-changed:
				s.stream.wake()
			case <-ended:
				return
			}
		}
	}()
	return func() { close(ended) }
}
