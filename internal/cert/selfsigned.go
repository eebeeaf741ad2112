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

// maxLeaves is how many certificates for further names are cached in memory.
const maxLeaves = 1000

// SelfSignedOptions configure NewSelfSigned.
type SelfSignedOptions struct {
	Dir  string // directory of ca.pem, ca.key and the host's certificate; must exist
	Host string // the service's own host name

	// AllowName returns nil if a further name may have a certificate. If AllowName is nil, no
	// further name gets one.
	AllowName func(ctx context.Context, name string) error

	Now func() time.Time // the clock; time.Now if nil
	Log *slog.Logger     // logs failed renewals; may be nil
}

// NewSelfSigned returns a source that signs its certificates with its own authority, which it
// creates once in the directory. The host's certificate is also valid for localhost, 127.0.0.1 and
// ::1. It is stored too, for users whose client trusts only this certificate. It is renewed 30 days
// before it expires, also while the service runs.
func NewSelfSigned(l SelfSignedOptions) (*Source, error) {
	if l.Now == nil {
		l.Now = time.Now
	}
	ca, err := openLocalCA(l.Dir, l.Now())
	if err != nil {
		return nil, err
	}
	s := &selfSignedSource{SelfSignedOptions: l, ca: ca, leaves: make(map[string]*tls.Certificate)}
	if _, err := s.hostCertificate(); err != nil {
		return nil, err
	}
	return &Source{getCertificate: s.getCertificate, private: true}, nil
}

type selfSignedSource struct {
	SelfSignedOptions
	ca *localCA

	mu         sync.Mutex
	cachedHost *tls.Certificate
	lastLogged time.Time
	leaves     map[string]*tls.Certificate
}

func (s *selfSignedSource) getCertificate(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
	name := serverName(hello)
	if name == "" || name == s.Host || name == "localhost" || s.AllowName == nil || s.AllowName(hello.Context(), name) != nil {
		return s.hostCertificate()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if leaf := s.leaves[name]; s.isCurrent(leaf) {
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

// hostCertificate returns the host's certificate: from memory, from the directory, or a new one. If
// the renewal fails, the old one stays in use until it expires.
func (s *selfSignedSource) hostCertificate() (*tls.Certificate, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.isCurrent(s.cachedHost) {
		return s.cachedHost, nil
	}
	certFile, keyFile := filepath.Join(s.Dir, "host.pem"), filepath.Join(s.Dir, "host.key")
	pair, err := readPair(certFile, keyFile)
	if err != nil || pair.Leaf.CheckSignatureFrom(s.ca.cert) != nil || pair.Leaf.VerifyHostname(s.Host) != nil {
		pair = s.cachedHost
	}
	if !s.isCurrent(pair) {
		next, err := s.renewHostCertificate(certFile, keyFile)
		switch {
		case err == nil:
			pair = next
		case pair == nil || !s.Now().Before(pair.Leaf.NotAfter):
			return nil, err
		default:
			s.logRenewalError(err)
		}
	}
	s.cachedHost = pair
	return pair, nil
}

func (s *selfSignedSource) renewHostCertificate(certFile, keyFile string) (*tls.Certificate, error) {
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

// logRenewalError logs a failed renewal, at most once an hour.
func (s *selfSignedSource) logRenewalError(err error) {
	if s.Log == nil || s.Now().Sub(s.lastLogged) < time.Hour {
		return
	}
	s.lastLogged = s.Now()
	s.Log.Error("the certificate of the host can't be renewed, the one before stays until its end", "err", err)
}

// isCurrent reports whether there is a certificate that need not be renewed yet. Near the
// authority's own expiry no certificate lasts longer than the authority.
func (s *selfSignedSource) isCurrent(c *tls.Certificate) bool {
	if c == nil {
		return false
	}
	end := c.Leaf.NotAfter
	return s.Now().Before(end) && (s.Now().Add(renewBefore).Before(end) || end.Equal(s.ca.cert.NotAfter))
}
