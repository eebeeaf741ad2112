// SPDX-License-Identifier: Apache-2.0

package cert

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"log/slog"
	"net"
	"path/filepath"
	"sync"
	"time"
)

// maxLeaves is how many certificates for further names are held in memory.
const maxLeaves = 1000

// Local says what SelfSigned needs.
type Local struct {
	Dir  string // folder of ca.pem, ca.key and the host's certificate; must exist
	Host string // the service's own name

	// Allow says whether a further name may have a certificate: nil if it
	// may. If Allow itself is nil, none may.
	Allow func(ctx context.Context, name string) error

	Now func() time.Time // the clock; time.Now if nil
	Log *slog.Logger     // told of a certificate that can't be renewed; may be nil
}

// SelfSigned returns a source that signs its certificates with an authority
// of its own, made once and kept in the folder. The host's certificate is also
// good for localhost, 127.0.0.1 and ::1. It is kept too, for people who told
// their client to trust just this one, and renewed 30 days before its end,
// while running as well.
func SelfSigned(l Local) (*Source, error) {
	if l.Now == nil {
		l.Now = time.Now
	}
	ca, err := openAuthority(l.Dir, l.Now())
	if err != nil {
		return nil, err
	}
	s := &selfSigned{Local: l, ca: ca, leaves: make(map[string]*tls.Certificate)}
	if _, err := s.own(); err != nil {
		return nil, err
	}
	return &Source{get: s.get, local: true}, nil
}

type selfSigned struct {
	Local
	ca *authority

	mu     sync.Mutex
	host   *tls.Certificate
	told   time.Time
	leaves map[string]*tls.Certificate
}

func (s *selfSigned) get(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
	name := serverName(hello)
	if name == "" || name == s.Host || name == "localhost" || s.Allow == nil || s.Allow(hello.Context(), name) != nil {
		return s.own()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if leaf := s.leaves[name]; s.lasts(leaf) {
		return leaf, nil
	}
	chain, key, err := s.ca.issue(s.Now(), nil, name)
	if err != nil {
		return nil, err
	}
	leaf := &tls.Certificate{Certificate: chain, PrivateKey: key}
	if leaf.Leaf, err = x509.ParseCertificate(chain[0]); err != nil {
		return nil, err
	}
	if len(s.leaves) >= maxLeaves {
		clear(s.leaves)
	}
	s.leaves[name] = leaf
	return leaf, nil
}

// own returns the host's certificate: from memory, from the folder, or new. One
// that can't be renewed serves on to its end.
func (s *selfSigned) own() (*tls.Certificate, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lasts(s.host) {
		return s.host, nil
	}
	certFile, keyFile := filepath.Join(s.Dir, "host.pem"), filepath.Join(s.Dir, "host.key")
	pair, err := readPair(certFile, keyFile)
	if err != nil || pair.Leaf.CheckSignatureFrom(s.ca.cert) != nil || pair.Leaf.VerifyHostname(s.Host) != nil {
		pair = s.host
	}
	if !s.lasts(pair) {
		next, err := s.renew(certFile, keyFile)
		switch {
		case err == nil:
			pair = next
		case pair == nil || !s.Now().Before(pair.Leaf.NotAfter):
			return nil, err
		default:
			s.complain(err)
		}
	}
	s.host = pair
	return pair, nil
}

func (s *selfSigned) renew(certFile, keyFile string) (*tls.Certificate, error) {
	chain, key, err := s.ca.issue(s.Now(), []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback}, s.Host, "localhost")
	if err != nil {
		return nil, err
	}
	pair, err := writePair(certFile, keyFile, chain, key)
	if err != nil {
		return nil, fmt.Errorf("keeping the certificate of the host: %w", err)
	}
	return pair, nil
}

// complain tells the operator, not at each handshake.
func (s *selfSigned) complain(err error) {
	if s.Log == nil || s.Now().Sub(s.told) < time.Hour {
		return
	}
	s.told = s.Now()
	s.Log.Error("the certificate of the host can't be renewed, the one before stays until its end", "err", err)
}

// lasts reports whether a certificate is there and not yet to be renewed.
// Near the authority's own end nothing lasts longer than that.
func (s *selfSigned) lasts(c *tls.Certificate) bool {
	if c == nil {
		return false
	}
	end := c.Leaf.NotAfter
	return s.Now().Before(end) && (s.Now().Add(renewBefore).Before(end) || end.Equal(s.ca.cert.NotAfter))
}
