// SPDX-License-Identifier: Apache-2.0

package dns

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	wire "github.com/miekg/dns"
	"golang.org/x/net/netutil"
)

// Limits of the sandbox server, which serves only the local host.
const (
	sourceTimeout  = 5 * time.Second
	maxConnections = 64
	maxConcurrent  = 256 // simultaneous questions; more get no answer
)

// ErrDrop is returned by a Source to leave a question unanswered.
var ErrDrop = errors.New("no answer is sent")

// SandboxZones returns the zones that the sandbox serves: the reserved top-level domains (RFC 2606
// §2), and those of a local network (RFC 6762, RFC 8375).
func SandboxZones() []string {
	return []string{"test.", "example.", "invalid.", "localhost.", "local.", "home.arpa."}
}

// Source returns all data of a name, which is in lower case with a trailing dot; the Server selects
// by type. An error becomes SERVFAIL. Don't change records after returning them.
type Source func(ctx context.Context, name string) (NameData, error)

// NameData is a Source's data of a name.
type NameData struct {
	Records []wire.RR
	// Exists is set if a name without records, or a name below it, exists: the answer is then no
	// data instead of NXDOMAIN.
	Exists bool
	// Authentic sets the AD bit, as a validating server would.
	Authentic bool
}

// ServerConfig configures a Server.
type ServerConfig struct {
	Addr string // HOST:PORT for both UDP and TCP; port 0: a free port
	// Origins are the served zones, such as "test.". Names outside are refused. Empty:
	// SandboxZones.
	Origins []string
	// NegativeTTL is how long clients may cache NXDOMAIN and no data; 1 s if 0.
	NegativeTTL time.Duration
}

// Server is an authoritative DNS server over UDP and TCP. It forwards nothing, but sets RA: without
// it, clients such as Go's own would assume a broken delegation.
type Server struct {
	source      Source
	origins     []string
	negativeTTL uint32
	packets     net.PacketConn
	listener    net.Listener
	servers     []*wire.Server  // UDP and TCP; empty before Serve
	ctx         context.Context // ends at Close
	cancel      context.CancelFunc
	querySlots  chan struct{}
	serving     sync.WaitGroup
}

// Listen opens the port of a Server. Questions wait until Serve.
func Listen(c ServerConfig) (*Server, error) {
	s := &Server{negativeTTL: 1, querySlots: make(chan struct{}, maxConcurrent)}
	if c.NegativeTTL > 0 {
		s.negativeTTL = uint32(c.NegativeTTL / time.Second)
	}
	origins := c.Origins
	if len(origins) == 0 {
		origins = SandboxZones()
	}
	for _, o := range origins {
		fqdn, ok := canonical(o)
		if !ok {
			return nil, errors.New("dns: an origin is not a domain name")
		}
		s.origins = append(s.origins, fqdn)
	}
	var err error
	if s.packets, s.listener, err = listen(c.Addr); err != nil {
		return nil, fmt.Errorf("opening the DNS sockets: %w", err)
	}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	return s, nil
}

// Serve answers questions from source until Close. It returns at once.
func (s *Server) Serve(source Source) {
	s.source = source
	s.servers = []*wire.Server{
		{PacketConn: s.packets, UDPSize: maxUDPSize, Handler: s.handler(false)},
		{Listener: netutil.LimitListener(s.listener, maxConnections), Handler: s.handler(true)},
	}
	for _, w := range s.servers {
		started := make(chan struct{})
		w.NotifyStartedFunc = func() { close(started) }
		s.serving.Go(func() { _ = w.ActivateAndServe() }) // ends with Close; it retries temporary errors itself
		<-started
	}
}

// listen opens the same port for UDP and TCP.
func listen(addr string) (net.PacketConn, net.Listener, error) {
	const tries = 10 // a free UDP port may be taken for TCP
	var err error
	for range tries {
		var packets net.PacketConn
		if packets, err = net.ListenPacket("udp", addr); err != nil {
			return nil, nil, err
		}
		var listener net.Listener
		if listener, err = net.Listen("tcp", packets.LocalAddr().String()); err == nil {
			return packets, listener, nil
		}
		_ = packets.Close()
		if _, port, _ := net.SplitHostPort(addr); port != "0" {
			break
		}
	}
	return nil, nil, err
}

// Addr returns the server's address, including the port.
func (s *Server) Addr() string { return s.packets.LocalAddr().String() }

// Close stops the server and waits for the questions in progress.
func (s *Server) Close() error {
	s.cancel()
	if len(s.servers) == 0 {
		return errors.Join(s.packets.Close(), s.listener.Close())
	}
	var errs []error
	for _, w := range s.servers {
		errs = append(errs, w.Shutdown())
	}
	s.serving.Wait()
	return errors.Join(errs...)
}

func (s *Server) handler(tcp bool) wire.HandlerFunc {
	return func(w wire.ResponseWriter, req *wire.Msg) {
		select {
		case s.querySlots <- struct{}{}:
			defer func() { <-s.querySlots }()
		default:
			return
		}
		ctx, cancel := context.WithTimeout(s.ctx, sourceTimeout)
		defer cancel()
		if m := s.respond(ctx, req, tcp); m != nil {
			_ = w.WriteMsg(m) // the client may be gone
		}
	}
}

// respond returns the response to a request, which has exactly one question, or nil to send none.
func (s *Server) respond(ctx context.Context, req *wire.Msg, tcp bool) *wire.Msg {
	m := new(wire.Msg).SetReply(req)
	m.RecursionAvailable = true
	size := wire.MinMsgSize
	if opt := req.IsEdns0(); opt != nil {
		size = min(max(int(opt.UDPSize()), size), 4096)
		m.SetEdns0(maxUDPSize, opt.Do())
		if opt.Version() != 0 {
			m.Rcode = wire.RcodeBadVers
			return m
		}
	}
	if tcp {
		size = wire.MaxMsgSize
	}
	switch q := req.Question[0]; {
	case req.Opcode != wire.OpcodeQuery, q.Qtype == wire.TypeANY:
		m.Rcode = wire.RcodeNotImplemented
	case q.Qclass != wire.ClassINET, q.Qtype == wire.TypeAXFR, q.Qtype == wire.TypeIXFR,
		s.zoneOf(wire.CanonicalName(q.Name)) == "":
		m.Rcode = wire.RcodeRefused
	default:
		if err := s.fillAnswer(ctx, m, question{wire.CanonicalName(q.Name), q.Qtype}); err != nil {
			if errors.Is(err, ErrDrop) {
				return nil
			}
			m.Answer, m.Ns, m.Rcode = nil, nil, wire.RcodeServerFailure
		}
	}
	m.Truncate(size)
	return m
}

// fillAnswer adds the records for q, with the CNAMEs that lead to them (RFC 1034 §4.3.2), as long
// as they are in our zones.
func (s *Server) fillAnswer(ctx context.Context, m *wire.Msg, q question) error {
	m.Authoritative, m.AuthenticatedData = true, true
	for range maxChain {
		origin := s.zoneOf(q.name)
		if origin == "" {
			return nil
		}
		a, err := s.source(ctx, q.name)
		if err != nil {
			return err
		}
		m.AuthenticatedData = m.AuthenticatedData && a.Authentic
		alias, found := "", false
		for _, rr := range a.Records {
			if rr.Header().Rrtype == q.qtype {
				m.Answer = append(m.Answer, rr)
				found = true
			} else if c, ok := rr.(*wire.CNAME); ok {
				m.Answer = append(m.Answer, c)
				alias = wire.CanonicalName(c.Target)
			}
		}
		if found {
			return nil
		}
		if alias == "" {
			if len(a.Records) == 0 && !a.Exists {
				m.Rcode = wire.RcodeNameError
			}
			m.Ns = []wire.RR{s.soa(origin)}
			return nil
		}
		q.name = alias
	}
	return errCNAMEChain
}

// zoneOf returns the zone of a name, or "".
func (s *Server) zoneOf(name string) string {
	for _, o := range s.origins {
		if wire.IsSubDomain(o, name) {
			return o
		}
	}
	return ""
}

// soa returns the SOA of a negative answer, which says how long that may be cached (RFC 2308 §3).
func (s *Server) soa(origin string) *wire.SOA {
	return &wire.SOA{
		Hdr: wire.RR_Header{Name: origin, Rrtype: wire.TypeSOA, Class: wire.ClassINET, Ttl: s.negativeTTL},
		Ns:  "localhost.", Mbox: "hostmaster.localhost.",
		Serial: 1, Refresh: 3600, Retry: 600, Expire: 86400, Minttl: s.negativeTTL,
	}
}
