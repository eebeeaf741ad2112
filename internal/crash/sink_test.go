// SPDX-License-Identifier: Apache-2.0

package crash

import (
	"bufio"
	"net"
	"net/textproto"
	"strings"
	"sync"
	"testing"
)

// sink is the outside world's mail host: it takes everything, and can be made
// to keep those who send waiting.
type sink struct {
	port string

	mu     sync.Mutex
	last   int                      // the number of the copy that arrived last
	held   map[string]chan struct{} // stages at which sessions wait until it is closed
	copies map[string][]arrival     // of each message, by its subject
	open   map[net.Conn]bool
	onStay chan string // one for each session that begins to wait, as far as there is room
}

// arrival is one copy of a message.
type arrival struct {
	id string // Message-ID
	n  int    // its place among all copies
}

// sinkAddr is where it listens: loopback, but not where we are.
const sinkAddr = "127.0.0.2"

// The stages of a transaction at which a session can be held: when DATA is to
// be answered, and when the whole message is.
const (
	atData  = "data"
	atFinal = "final"
)

func startSink(t testing.TB) *sink {
	t.Helper()
	l, err := net.Listen("tcp", sinkAddr+":0")
	if err != nil {
		t.Fatal(err)
	}
	s := &sink{held: map[string]chan struct{}{}, copies: map[string][]arrival{}, open: map[net.Conn]bool{}, onStay: make(chan string, 1000)}
	_, s.port, _ = net.SplitHostPort(l.Addr().String())
	var all sync.WaitGroup
	all.Go(func() {
		for {
			nc, err := l.Accept()
			if err != nil {
				return
			}
			s.mu.Lock()
			s.open[nc] = true
			s.mu.Unlock()
			all.Go(func() {
				s.serve(nc)
				_ = nc.Close()
				s.mu.Lock()
				delete(s.open, nc)
				s.mu.Unlock()
			})
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		s.release(atData)
		s.release(atFinal)
		s.mu.Lock()
		for nc := range s.open {
			_ = nc.Close()
		}
		s.mu.Unlock()
		all.Wait()
	})
	return s
}

// hold makes sessions wait at a stage.
func (s *sink) hold(stage string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.held[stage] = make(chan struct{})
}

// release lets them go on.
func (s *sink) release(stage string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.held[stage] != nil {
		close(s.held[stage])
		delete(s.held, stage)
	}
}

func (s *sink) stay(stage string) {
	s.mu.Lock()
	until := s.held[stage]
	s.mu.Unlock()
	if until == nil {
		return
	}
	select {
	case s.onStay <- stage:
	default:
	}
	<-until
}

// serve is one session (RFC 5321), without anything that a client might want
// beyond the least.
func (s *sink) serve(nc net.Conn) {
	r := textproto.NewReader(bufio.NewReader(nc))
	say := func(line string) bool {
		_, err := nc.Write([]byte(line + "\r\n"))
		return err == nil
	}
	for more := say("220 mx.outside.example ready"); more; {
		line, err := r.ReadLine()
		if err != nil {
			return
		}
		switch verb, _, _ := strings.Cut(strings.ToUpper(line), " "); verb {
		case "EHLO":
			more = say("250 mx.outside.example")
		case "DATA":
			s.stay(atData)
			more = say("354 go ahead") && s.message(r, say)
		case "QUIT":
			say("221 2.0.0 bye")
			return
		default:
			more = say("250 2.0.0 ok")
		}
	}
}

// message takes a message up to its final dot: then it is there, whether the
// client hears of it or not.
func (s *sink) message(r *textproto.Reader, say func(string) bool) bool {
	text := r.DotReader()
	head, err := textproto.NewReader(bufio.NewReader(text)).ReadMIMEHeader()
	if err != nil {
		return false
	}
	for buf := make([]byte, 4096); err == nil; {
		_, err = text.Read(buf)
	}
	if err.Error() != "EOF" {
		return false
	}
	subject := head.Get("Subject")
	s.mu.Lock()
	s.last++
	s.copies[subject] = append(s.copies[subject], arrival{head.Get("Message-Id"), s.last})
	s.mu.Unlock()
	s.stay(atFinal)
	return say("250 2.0.0 taken")
}

// got returns the copies of a message that have arrived.
func (s *sink) got(subject string) []arrival {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]arrival(nil), s.copies[subject]...)
}

// mark returns how many copies have arrived.
func (s *sink) mark() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.last
}
