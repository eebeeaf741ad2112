// SPDX-License-Identifier: Apache-2.0

package imapd

import (
	"errors"
	"net"
	"sync"
	"time"
)

// errWoken ends an await that wake interrupted.
var errWoken = errors.New("woken")

// writeStep is how much may go out under one deadline: a client that takes
// less per Timeouts.Write is given up.
const writeStep = 64 << 10

// stream is a connection with a deadline for each step. All but wake and
// raw.Close belong to the session's goroutine.
type stream struct {
	raw   net.Conn      // TCP
	nc    net.Conn      // raw, or TLS on top of it
	read  time.Duration // for the next bytes
	write time.Duration // for writeStep bytes
	until time.Time     // when reading ends at all; zero for never
	// flush sends what is collected: whoever waits for the client must not
	// hold back what the client waits for.
	flush func() error

	mu      sync.Mutex
	waiting bool // in await
	woken   bool // wake was called since the last await ended
}

// Read reads what is there, after everything collected has been sent.
func (s *stream) Read(p []byte) (int, error) {
	if err := s.flush(); err != nil {
		return 0, err
	}
	deadline := time.Now().Add(s.read)
	if !s.until.IsZero() && s.until.Before(deadline) {
		deadline = s.until
	}
	s.mu.Lock()
	if s.waiting && s.woken {
		s.mu.Unlock()
		return 0, errWoken
	}
	err := s.nc.SetReadDeadline(deadline)
	s.mu.Unlock()
	if err != nil {
		return 0, err
	}
	return s.nc.Read(p)
}

// Write sends p in steps, each of which has its own deadline.
func (s *stream) Write(p []byte) (int, error) {
	done := 0
	for done < len(p) {
		if err := s.nc.SetWriteDeadline(time.Now().Add(s.write)); err != nil {
			return done, err
		}
		n, err := s.nc.Write(p[done:min(len(p), done+writeStep)])
		done += n
		if err != nil {
			return done, err
		}
	}
	return done, nil
}

// await calls peek, which reads but takes nothing. A wake before or during it
// makes it return errWoken, unless there is something to read.
func (s *stream) await(peek func() error) error {
	s.mu.Lock()
	s.waiting = true
	s.mu.Unlock()
	err := peek()
	s.mu.Lock()
	woken := s.woken
	s.waiting, s.woken = false, false
	s.mu.Unlock()
	if err != nil && woken {
		return errWoken
	}
	return err
}

// wake interrupts the await that is under way, or else the next one.
func (s *stream) wake() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.woken = true
	if s.waiting {
		s.nc.SetReadDeadline(time.Unix(1, 0))
	}
}

// upgrade goes on over TLS.
func (s *stream) upgrade(nc net.Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.nc = nc
}
