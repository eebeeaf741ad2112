// SPDX-License-Identifier: Apache-2.0

package cert

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"log/slog"
	"path/filepath"
	"slices"
	"time"

	"github.com/caddyserver/certmagic"
	"go.uber.org/zap"

	"github.com/mailstead/mailstead/internal/dns"
	"github.com/mailstead/mailstead/internal/durable"
)

// acmeProto is the ALPN protocol of the TLS-ALPN-01 challenge (RFC 8737).
const acmeProto = "acme-tls/1"

// maxCachedCerts is how many certificates for further names are held in memory.
const maxCachedCerts = 10_000

// ACMEOptions says what NewACME needs.
type ACMEOptions struct {
	Dir          string         // folder of the account and the certificates
	Host         string         // the service's own name
	Email        string         // told to the authority; may be empty
	DirectoryURL string         // the authority's directory; Let's Encrypt if empty
	Roots        *x509.CertPool // whom to trust when talking to it; the system's if nil

	// Where the doors listen that the authority reaches at ports 80 and 443.
	// A port of 0 turns its challenge (HTTP-01, TLS-ALPN-01) off.
	Bind      string
	HTTPPort  int
	HTTPSPort int

	// AllowName says whether a further name may have a certificate when a client
	// asks for it: nil if it may. Each one costs the authority work and us
	// some of its limits. If Allow itself is nil, none may.
	AllowName func(ctx context.Context, name string) error

	DNS *dns.Resolver    // says whether a further name leads here
	Now func() time.Time // the clock of failures; time.Now if nil
	Log *slog.Logger     // told of certificates that come into use, and of failures

	cacheCapacity int // maxCachedCerts if 0
}

// NewACME returns a source that obtains certificates from an NewACME authority (RFC
// 8555) and renews them: the host's from Start on, further ones when first
// asked for. To use it is to agree to the authority's terms.
func NewACME(a ACMEOptions) (*Source, error) {
	if a.HTTPPort == 0 && a.HTTPSPort == 0 {
		return nil, errors.New("acme: neither an HTTP nor an HTTPS port, so no challenge can be answered")
	}
	if a.DirectoryURL == "" {
		a.DirectoryURL = certmagic.LetsEncryptProductionCA
	}
	if a.AllowName == nil {
		a.AllowName = func(context.Context, string) error { return errors.New("no further names") }
	}
	if a.cacheCapacity == 0 {
		a.cacheCapacity = maxCachedCerts
	}
	if a.Now == nil {
		a.Now = time.Now
	}
	// Two configurations: certmagic obtains in advance only without OnDemand,
	// and asks Allow only with it. Each has a cache, as from a full one any
	// certificate may go, and one that is not there is not renewed.
	var host, further *certmagic.Config
	hosts, furthers := newCache(&host, 0), newCache(&further, a.cacheCapacity)
	host, issuer := a.newConfig(hosts, nil, a.handleEvent)
	asking := &onDemandPolicy{ACMEOptions: a, backoffs: make(map[string]time.Time)}
	further, _ = a.newConfig(furthers, &certmagic.OnDemandConfig{DecisionFunc: a.AllowName}, asking.handleEvent)
	s := &Source{
		getCertificate: a.getCertificateFunc(host, further),
		start:          func(ctx context.Context) error { return host.ManageAsync(ctx, []string{a.Host}) },
		close: func() {
			hosts.Stop()
			furthers.Stop()
		},
	}
	if a.HTTPPort != 0 {
		s.challengeHandler = issuer.HTTPChallengeHandler
	}
	if a.HTTPSPort != 0 {
		s.protos = []string{acmeProto}
	}
	return s, nil
}

// newCache returns a cache, of any size if capacity is 0, of what the
// configuration maintains that will be there.
func newCache(c **certmagic.Config, capacity int) *certmagic.Cache {
	return certmagic.NewCache(certmagic.CacheOptions{
		GetConfigForCert: func(certmagic.Certificate) (*certmagic.Config, error) { return *c, nil },
		Capacity:         capacity,
		Logger:           zap.NewNop(),
	})
}

type eventFunc = func(ctx context.Context, event string, data map[string]any) error

func (a ACMEOptions) newConfig(cache *certmagic.Cache, onDemand *certmagic.OnDemandConfig, event eventFunc) (*certmagic.Config, *certmagic.ACMEIssuer) {
	c := certmagic.New(cache, certmagic.Config{
		DefaultServerName: a.Host,
		OnDemand:          onDemand,
		OnEvent:           event,
		OCSP:              certmagic.OCSPConfig{DisableStapling: true},
		Storage:           &syncedStorage{FileStorage: certmagic.FileStorage{Path: a.Dir}},
		Logger:            zap.NewNop(), // what matters comes as events
	})
	issuer := certmagic.NewACMEIssuer(c, certmagic.ACMEIssuer{
		CA:                      a.DirectoryURL,
		Email:                   a.Email,
		Agreed:                  true,
		TrustedRoots:            a.Roots,
		ListenHost:              a.Bind,
		AltHTTPPort:             a.HTTPPort,
		AltTLSALPNPort:          a.HTTPSPort,
		DisableHTTPChallenge:    a.HTTPPort == 0,
		DisableTLSALPNChallenge: a.HTTPSPort == 0,
		Logger:                  zap.NewNop(),
	})
	c.Issuers = []certmagic.Issuer{issuer}
	return c, issuer
}

// getCertificateFunc returns the host's certificate where none can be had for the name
// asked for: other mail servers ask for all sorts of names and check none. The
// host's is asked of its own configuration alone: the other one would take it
// out of use when it is time to renew it, since Allow does not know it.
func (a ACMEOptions) getCertificateFunc(host, further *certmagic.Config) func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	return func(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
		if slices.Contains(hello.SupportedProtos, acmeProto) {
			return host.GetCertificate(hello)
		}
		asked := *hello
		asked.ServerName = serverName(hello)
		if asked.ServerName != "" && asked.ServerName != a.Host {
			ctx, stop := context.WithCancel(hello.Context())
			defer stop()
			if got, err := further.GetCertificateWithContext(context.WithValue(ctx, cancelKey{}, stop), &asked); err == nil {
				return got, nil
			}
		}
		asked.ServerName = a.Host
		return host.GetCertificate(&asked)
	}
}

func (a ACMEOptions) handleEvent(_ context.Context, event string, data map[string]any) error {
	switch event {
	case "cached_managed_cert":
		a.Log.Info("certificate in use", "names", data["sans"])
	case "cert_failed":
		a.Log.Error("certificate not obtained", "name", data["identifier"], "renewal", data["renewal"], "err", data["error"])
	}
	return nil
}

// syncedStorage is certmagic's, whose files would not survive a loss of power: it does
// not sync their folders.
type syncedStorage struct{ certmagic.FileStorage }

// Store writes the value of a key.
func (s *syncedStorage) Store(_ context.Context, key string, value []byte) error {
	path := s.Filename(key)
	if err := durable.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	return durable.WriteFile(path, value, 0o600)
}
