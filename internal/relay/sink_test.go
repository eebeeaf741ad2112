// SPDX-License-Identifier: Apache-2.0

package relay_test

import (
	"bufio"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"math/big"
	"net"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"
)

// received is a message that a sink accepted.
type received struct {
	session  int // number of the connection, from 1
	from, to string
	data     string
	tls      bool
}

// sink is an SMTP server that accepts everything, except as configured.
type sink struct {
	addr netip.AddrPort
	ext  []string    // of its EHLO
	tls  *tls.Config // offers STARTTLS
	// implicit speaks TLS from the first byte instead.
	implicit bool
	// answer, if set, gives the reply to a line, or to "greeting" and "final";
	// "" is the usual one, and drop closes the connection.
	answer func(session int, line string) string
	forget bool // don't store accepted messages

	mu       sync.Mutex
	sessions int
	got      []received
}

// drop as an answer closes the connection.
const drop = "drop"

// bind listens at addresses of loopback, all on one free port.
func bind(t testing.TB, ips ...string) []net.Listener {
	t.Helper()
	var failed error
	for range 50 {
		port := "0"
		var all []net.Listener
		for _, ip := range ips {
			l, err := net.Listen("tcp", net.JoinHostPort(ip, port))
			if failed = err; err != nil {
				break // the port is in use on that address
			}
			all = append(all, l)
			_, port, _ = net.SplitHostPort(l.Addr().String())
		}
		if failed == nil {
			return all
		}
		for _, l := range all {
			_ = l.Close()
		}
	}
	t.Fatal(failed)
	return nil
}

// listen starts a sink on a free port.
func listen(t testing.TB, s *sink) *sink {
	t.Helper()
	return start(t, bind(t, "127.0.0.1")[0], s)
}

// start makes a sink serve until the test ends.
func start(t testing.TB, l net.Listener, s *sink) *sink {
	s.addr = l.Addr().(*net.TCPAddr).AddrPort()
	if s.ext == nil {
		s.ext = []string{"PIPELINING", "8BITMIME", "SMTPUTF8", "ENHANCEDSTATUSCODES"}
	}
	var wg sync.WaitGroup
	var mu sync.Mutex
	open := map[net.Conn]bool{}
	wg.Go(func() {
		for {
			nc, err := l.Accept()
			if err != nil {
				return
			}
			mu.Lock()
			open[nc] = true
			mu.Unlock()
			s.mu.Lock()
			s.sessions++
			n := s.sessions
			s.mu.Unlock()
			wg.Go(func() {
				s.serve(nc, n)
				_ = nc.Close()
				mu.Lock()
				delete(open, nc)
				mu.Unlock()
			})
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		mu.Lock()
		for nc := range open {
			_ = nc.Close()
		}
		mu.Unlock()
		wg.Wait()
	})
	return s
}

// talk is one SMTP session of a sink.
type talk struct {
	s    *sink
	nc   net.Conn
	br   *bufio.Reader
	bw   *bufio.Writer
	gone bool // whether to close the connection
	cur  received
}

// say replies to a line, and reports whether the reply was not a rejection.
func (t *talk) say(line, usual string) bool {
	reply := ""
	if t.s.answer != nil {
		reply = t.s.answer(t.cur.session, line)
	}
	if reply == "" {
		reply = usual
	}
	if reply == drop {
		t.gone = true
		return false
	}
	_, _ = t.bw.WriteString(reply + "\r\n")
	t.gone = t.gone || strings.HasPrefix(reply, "421") || strings.HasPrefix(reply, "221")
	return reply[0] < '4'
}

func (s *sink) serve(nc net.Conn, n int) {
	t := &talk{s: s, nc: nc, br: bufio.NewReaderSize(nc, 16<<10), bw: bufio.NewWriter(nc), cur: received{session: n}}
	if s.implicit {
		t.secure()
	}
	t.say("greeting", "220 sink.test ready")
	for !t.gone {
		if t.br.Buffered() == 0 && t.bw.Flush() != nil {
			return
		}
		line, err := t.br.ReadString('\n')
		if err != nil {
			return
		}
		t.command(strings.TrimRight(line, "\r\n"))
	}
	_ = t.bw.Flush()
}

func (t *talk) secure() {
	secure := tls.Server(t.nc, t.s.tls)
	t.br.Reset(secure)
	t.bw.Reset(secure)
	t.cur.tls = true
}

func (t *talk) command(line string) {
	verb, arg, _ := strings.Cut(line, " ")
	switch verb {
	case "EHLO":
		ext := append([]string{"sink.test"}, t.s.ext...)
		if t.s.tls != nil && !t.cur.tls {
			ext = append(ext, "STARTTLS")
		}
		last := len(ext) - 1
		t.say(line, strings.Join(append(prefixed("250-", ext[:last]), "250 "+ext[last]), "\r\n"))
	case "STARTTLS":
		if t.say(line, "220 go ahead") && t.bw.Flush() == nil {
			t.secure()
		}
	case "MAIL":
		t.cur.from, t.cur.to = arg, ""
		t.say(line, "250 2.1.0 ok")
	case "RCPT":
		if t.say(line, "250 2.1.5 ok") {
			t.cur.to += strings.TrimPrefix(arg, "TO:")
		}
	case "DATA":
		if t.cur.to == "" {
			t.say(line, "554 5.5.1 no valid recipients")
		} else if t.say(line, "354 go ahead") && t.bw.Flush() == nil {
			t.message()
		}
	case "QUIT":
		t.say(line, "221 2.0.0 bye")
	default:
		t.say(line, "250 2.0.0 ok")
	}
}

func prefixed(prefix string, list []string) (out []string) {
	for _, s := range list {
		out = append(out, prefix+s)
	}
	return out
}

// message reads up to the final dot.
func (t *talk) message() {
	var b strings.Builder
	for {
		line, err := t.br.ReadString('\n')
		if err != nil {
			t.gone = true
			return
		}
		if line == ".\r\n" {
			break
		}
		b.WriteString(strings.TrimPrefix(line, "."))
	}
	t.cur.data = b.String()
	if t.say("final", "250 2.0.0 taken") && !t.s.forget {
		t.s.mu.Lock()
		t.s.got = append(t.s.got, t.cur)
		t.s.mu.Unlock()
	}
}

// mail returns the accepted messages.
func (s *sink) mail() []received {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]received(nil), s.got...)
}

// connections returns the number of connections so far.
func (s *sink) connections() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.sessions
}

// certificate returns a self-signed certificate for a name.
func certificate(t testing.TB, name string) *tls.Config {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	tmpl := &x509.Certificate{
		SerialNumber: big.NewInt(1), DNSNames: []string{name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
	}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	return &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}}
}
