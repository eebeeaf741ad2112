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

// writeChunkSize is how much may go out under one deadline: a client that takes
// less per Timeouts.Write is given up.
const writeChunkSize = 64 << 10

// stream is a connection with a deadline for each step. All but wake and
// raw.Close belong to the session's goroutine.
type stream struct {
	tcp          net.Conn      // TCP
	conn         net.Conn      // raw, or TLS on top of it
	readTimeout  time.Duration // for the next bytes
	writeTimeout time.Duration // for writeChunkSize bytes
	readDeadline time.Time     // when reading ends at all; zero for never
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
	deadline := time.Now().Add(s.readTimeout)
	if !s.readDeadline.IsZero() && s.readDeadline.Before(deadline) {
		deadline = s.readDeadline
	}
	s.mu.Lock()
	if s.waiting && s.woken {
		s.mu.Unlock()
		return 0, errWoken
	}
	err := s.conn.SetReadDeadline(deadline)
	s.mu.Unlock()
	if err != nil {
		return 0, err
	}
	return s.conn.Read(p)
}

// Write sends p in steps, each of which has its own deadline.
func (s *stream) Write(p []byte) (int, error) {
	done := 0
	for done < len(p) {
		if err := s.conn.SetWriteDeadline(time.Now().Add(s.writeTimeout)); err != nil {
			return done, err
		}
		n, err := s.conn.Write(p[done:min(len(p), done+writeChunkSize)])
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
		s.conn.SetReadDeadline(time.Unix(1, 0))
	}
}

// upgrade goes on over TLS.
func (s *stream) upgrade(nc net.Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.conn = nc
}
