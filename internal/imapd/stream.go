// SPDX-License-Identifier: Apache-2.0

package imapd

import (
	"errors"
	"net"
	"sync"
	"time"
)

// errWoken is returned by an await that wake interrupted.
var errWoken = errors.New("woken")

// writeChunkSize is how much is written under one deadline: a client that reads less per
// Timeouts.Write is disconnected.
const writeChunkSize = 64 << 10

// stream is a connection with a deadline for each step. Only wake and tcp.Close may be used outside
// of the session's goroutine.
type stream struct {
	tcp          net.Conn      // the TCP connection
	conn         net.Conn      // tcp, or TLS on top of it
	readTimeout  time.Duration // for the next bytes
	writeTimeout time.Duration // for writeChunkSize bytes
	readDeadline time.Time     // when all reading ends; zero for never
	// flush sends buffered output. A session that waits for the client must not hold back what the
	// client waits for.
	flush func() error

	mu      sync.Mutex
	waiting bool // whether await is running
	woken   bool // whether wake was called since the last await ended
}

// Read sends all buffered output and then reads.
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

// Write sends p in steps, each with its own deadline.
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

// await calls peek, which reads without consuming. A wake before or during it makes it return
// errWoken, unless there is something to read.
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

// wake interrupts the current await, or else the next one.
func (s *stream) wake() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.woken = true
	if s.waiting {
		s.conn.SetReadDeadline(time.Unix(1, 0))
	}
}

// upgrade switches to TLS.
func (s *stream) upgrade(nc net.Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.conn = nc
}
