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

// sink is the outside mail host: it accepts everything, and can delay its responses.
type sink struct {
	port string

	mu     sync.Mutex
	last   int                      // number of the last copy
	held   map[string]chan struct{} // stages at which sessions wait until the channel is closed
	copies map[string][]arrival     // by the message's subject
	open   map[net.Conn]bool
	onStay chan string // one value per session that begins to wait, unless full
}

// arrival is one copy of a message.
type arrival struct {
	id string // Message-ID
	n  int    // position among all copies
}

// sinkAddr is the sink's address: a loopback address other than the service's.
const sinkAddr = "127.0.0.2"

// Stages of a transaction at which a session can be held: before the response to DATA, and before
// the response to the message.
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

// release lets waiting sessions continue.
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

// serve runs one session (RFC 5321) without extensions.
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

// message receives a message up to its final dot: then it counts as arrived, even if the client
// gets no response.
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

// mark returns the number of copies that have arrived.
func (s *sink) mark() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.last
}
