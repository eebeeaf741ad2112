// SPDX-License-Identifier: Apache-2.0

package smtp

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
)

// Sink is an SMTP server that accepts every message and stores none. It announces PIPELINING,
// 8BITMIME and SIZE, and answers pipelined commands together.
type Sink struct {
	Port int

	tls         *tls.Config
	messages    atomic.Int64
	connections atomic.Int64
	bytes       atomic.Int64
	target      atomic.Int64
	reached     chan struct{}

	listeners []net.Listener
	mu        sync.Mutex
	conns     map[net.Conn]struct{}
	closed    bool
	sessions  sync.WaitGroup
}

// Listen starts a sink on one free port of all the given loopback addresses. With a TLS
// configuration it offers STARTTLS.
func Listen(addrs []string, config *tls.Config) (*Sink, error) {
	s := &Sink{tls: config, reached: make(chan struct{}, 1), conns: map[net.Conn]struct{}{}}
	for i, a := range addrs {
		l, err := net.Listen("tcp", net.JoinHostPort(a, fmt.Sprint(s.Port)))
		if err != nil {
			return nil, errors.Join(err, s.Close())
		}
		if i == 0 {
			s.Port = l.Addr().(*net.TCPAddr).Port
		}
		s.listeners = append(s.listeners, l)
	}
	for _, l := range s.listeners {
		s.sessions.Go(func() { s.accept(l) })
	}
	return s, nil
}

// Counts are the totals so far.
type Counts struct {
	Messages, Connections, Bytes int64
}

// Counts returns the messages, connections and message bytes so far.
func (s *Sink) Counts() Counts {
	return Counts{s.messages.Load(), s.connections.Load(), s.bytes.Load()}
}

// WaitMessages waits until the sink has received this many messages since its start. Only one
// caller may wait at a time.
func (s *Sink) WaitMessages(ctx context.Context, messages int64) error {
	s.target.Store(messages)
	for s.messages.Load() < messages {
		select {
		case <-s.reached:
		case <-ctx.Done():
			return fmt.Errorf("the sink has %d of %d messages: %w", s.messages.Load(), messages, ctx.Err())
		}
	}
	return nil
}

// Close stops the sink and all its sessions.
func (s *Sink) Close() error {
	var errs []error
	for _, l := range s.listeners {
		errs = append(errs, l.Close())
	}
	s.mu.Lock()
	s.closed = true
	for c := range s.conns {
		errs = append(errs, c.Close())
	}
	s.mu.Unlock()
	s.sessions.Wait()
	return errors.Join(errs...)
}

func (s *Sink) accept(l net.Listener) {
	for {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		s.mu.Lock()
		if s.closed {
			s.mu.Unlock()
			_ = conn.Close()
			return
		}
		s.conns[conn] = struct{}{}
		s.mu.Unlock()
		s.connections.Add(1)
		s.sessions.Go(func() {
			s.serve(conn)
			s.mu.Lock()
			if _, ok := s.conns[conn]; ok && !s.closed {
				_ = conn.Close()
			}
			delete(s.conns, conn)
			s.mu.Unlock()
		})
	}
}

// serve serves one connection until it ends; replies to pipelined commands are sent together.
func (s *Sink) serve(conn net.Conn) {
	r, w := bufio.NewReaderSize(conn, 32<<10), bufio.NewWriter(conn)
	reply := func(text string) bool {
		if _, err := w.WriteString(text); err != nil {
			return false
		}
		return r.Buffered() > 0 || w.Flush() == nil
	}
	hello := "250-sink\r\n250-PIPELINING\r\n250-8BITMIME\r\n250-ENHANCEDSTATUSCODES\r\n250 SIZE 104857600\r\n"
	offer := s.tls != nil
	ok := reply("220 sink ESMTP\r\n")
	for ok {
		line, err := r.ReadSlice('\n')
		if err != nil {
			return
		}
		switch verb := bytes.ToUpper(line[:min(4, len(line))]); string(verb) {
		case "EHLO":
			if offer {
				ok = reply("250-STARTTLS\r\n" + hello)
			} else {
				ok = reply(hello)
			}
		case "STAR":
			if !offer {
				ok = reply("502 5.5.1 not offered\r\n")
				continue
			}
			if !reply("220 2.0.0 go on\r\n") {
				return
			}
			secure := tls.Server(conn, s.tls)
			r.Reset(secure)
			w.Reset(secure)
			offer = false
		case "DATA":
			if ok = reply("354 go on\r\n") && w.Flush() == nil && s.readMessage(r); ok {
				ok = reply("250 2.0.0 taken\r\n")
			}
		case "QUIT":
			_ = reply("221 2.0.0 bye\r\n")
			_ = w.Flush()
			return
		case "HELO", "MAIL", "RCPT", "RSET", "NOOP":
			ok = reply("250 2.0.0 ok\r\n")
		default:
			ok = reply("500 5.5.2 not known\r\n")
		}
	}
}

// readMessage reads up to the final dot and counts.
func (s *Sink) readMessage(r *bufio.Reader) bool {
	var n int64
	lineStart := true
	for {
		line, err := r.ReadSlice('\n')
		if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
			return false
		}
		if lineStart && string(line) == ".\r\n" {
			break
		}
		lineStart = err == nil
		n += int64(len(line))
	}
	s.bytes.Add(n)
	if s.messages.Add(1) >= s.target.Load() {
		select {
		case s.reached <- struct{}{}:
		default:
		}
	}
	return true
}
