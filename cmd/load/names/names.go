// SPDX-License-Identifier: Apache-2.0

// Package names is the DNS server of the load program: a resolver on loopback that knows only a
// run's names.
package names

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/miekg/dns"
)

// Server answers over UDP and TCP with its records, and NXDOMAIN for every other name; both have a
// TTL of one minute.
type Server struct {
	Addr string

	mu      sync.RWMutex
	records map[string][]dns.RR // by lower-case name with trailing dot
	servers []*dns.Server

	ignored   []string     // domains whose queries get no response
	dropEvery atomic.Int64 // drop one UDP packet in so many; 0 for none
	packets   atomic.Int64
	noSOA     atomic.Bool // negative responses have no SOA
}

// DropPackets makes the server drop one UDP packet in every, query or response; 0 means none. bare
// omits the SOA from negative responses, as some servers do, so that nobody may cache them.
func (s *Server) DropPackets(every int, bare bool) {
	s.dropEvery.Store(int64(every))
	s.noSOA.Store(bare)
}

// Ignore leaves all queries about a domain and the names below it unanswered.
func (s *Server) Ignore(domain string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ignored = append(s.ignored, "."+dns.Fqdn(domain))
}

// isIgnored reports whether a query gets no response.
func (s *Server) isIgnored(q *dns.Msg) bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return len(q.Question) == 1 && slices.ContainsFunc(s.ignored, func(suffix string) bool {
		return strings.HasSuffix("."+strings.ToLower(q.Question[0].Name), suffix)
	})
}

// dropsPacket reports whether to drop the next packet.
func (s *Server) dropsPacket(w dns.ResponseWriter) bool {
	every := s.dropEvery.Load()
	_, udp := w.RemoteAddr().(*net.UDPAddr)
	return udp && every > 0 && s.packets.Add(1)%every == 0
}

// Listen starts a server on a free port of 127.0.0.1.
func Listen() (*Server, error) {
	s := &Server{records: map[string][]dns.RR{}}
	for _, network := range []string{"udp", "tcp"} {
		addr := "127.0.0.1:0"
		if s.Addr != "" {
			addr = s.Addr
		}
		up, failed := make(chan struct{}), make(chan error, 1)
		d := &dns.Server{Addr: addr, Net: network, Handler: dns.HandlerFunc(s.answer), NotifyStartedFunc: func() { close(up) }}
		go func() { failed <- d.ListenAndServe() }()
		select {
		case <-up:
		case err := <-failed:
			return nil, errors.Join(err, s.Close())
		}
		if s.Addr == "" {
			s.Addr = d.PacketConn.LocalAddr().String()
		}
		s.servers = append(s.servers, d)
	}
	return s, nil
}

// Add publishes a record in presentation format: a name, a type such as MX, and the value as in a
// zone file, except that TXT values are not quoted.
func (s *Server) Add(name, kind, value string) error {
	if kind == "TXT" {
		value = quoteText(value)
	}
	rr, err := dns.NewRR(fmt.Sprintf("%s 60 IN %s %s", dns.Fqdn(name), kind, value))
	if err != nil {
		return fmt.Errorf("a %s record of %s: %w", kind, name, err)
	}
	key := strings.ToLower(rr.Header().Name)
	s.mu.Lock()
	defer s.mu.Unlock()
	if !slices.ContainsFunc(s.records[key], func(have dns.RR) bool { return dns.IsDuplicate(have, rr) }) {
		s.records[key] = append(s.records[key], rr)
	}
	return nil
}

// Close stops the server.
func (s *Server) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	var errs []error
	for _, d := range s.servers {
		errs = append(errs, d.ShutdownContext(ctx))
	}
	return errors.Join(errs...)
}

func (s *Server) answer(w dns.ResponseWriter, q *dns.Msg) {
	if s.dropsPacket(w) || s.isIgnored(q) {
		return
	}
	m := new(dns.Msg).SetReply(q)
	m.RecursionAvailable = true
	if opt := q.IsEdns0(); opt != nil {
		m.SetEdns0(4096, opt.Do())
	}
	if len(q.Question) == 1 {
		ask := q.Question[0]
		s.mu.RLock()
		have, known := s.records[strings.ToLower(ask.Name)]
		for _, rr := range have {
			if t := rr.Header().Rrtype; t == ask.Qtype || t == dns.TypeCNAME {
				m.Answer = append(m.Answer, rr)
			}
		}
		s.mu.RUnlock()
		if !known {
			m.Rcode = dns.RcodeNameError
		}
		if len(m.Answer) == 0 && !s.noSOA.Load() {
			m.Ns = append(m.Ns, soaRecord())
		}
	}
	if s.dropsPacket(w) {
		return
	}
	_ = w.WriteMsg(m) // the client retries
}

// soaRecord returns the SOA of negative responses, as any server sends it: without it nobody may
// cache the response (RFC 2308 §5).
func soaRecord() dns.RR {
	return &dns.SOA{
		Hdr: dns.RR_Header{Name: ".", Rrtype: dns.TypeSOA, Class: dns.ClassINET, Ttl: 60},
		Ns:  "ns.bench-sink.net.", Mbox: "hostmaster.bench-sink.net.", Serial: 1, Refresh: 3600, Retry: 600, Expire: 86400, Minttl: 60,
	}
}

// quoteText splits a text into strings of at most 255 bytes.
func quoteText(s string) string {
	var b strings.Builder
	for len(s) > 0 {
		n := min(len(s), 255)
		part := strings.ReplaceAll(strings.ReplaceAll(s[:n], `\`, `\\`), `"`, `\"`)
		fmt.Fprintf(&b, `"%s" `, part)
		s = s[n:]
	}
	return b.String()
}
