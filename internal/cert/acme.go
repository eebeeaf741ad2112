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

// maxACMECerts is how many certificates for further names are held in memory.
const maxACMECerts = 10_000

// Authority says what ACME needs.
type Authority struct {
	Dir   string         // folder of the account and the certificates
	Host  string         // the service's own name
	Email string         // told to the authority; may be empty
	URL   string         // the authority's directory; Let's Encrypt if empty
	Roots *x509.CertPool // whom to trust when talking to it; the system's if nil

	// Where the doors listen that the authority reaches at ports 80 and 443.
	// A port of 0 turns its challenge (HTTP-01, TLS-ALPN-01) off.
	Bind      string
	HTTPPort  int
	HTTPSPort int

	// Allow says whether a further name may have a certificate when a client
	// asks for it: nil if it may. Each one costs the authority work and us
	// some of its limits. If Allow itself is nil, none may.
	Allow func(ctx context.Context, name string) error

	DNS *dns.Resolver    // says whether a further name leads here
	Now func() time.Time // the clock of failures; time.Now if nil
	Log *slog.Logger     // told of certificates that come into use, and of failures

	capacity int // maxACMECerts if 0
}

// ACME returns a source that obtains certificates from an ACME authority (RFC
// 8555) and renews them: the host's from Start on, further ones when first
// asked for. To use it is to agree to the authority's terms.
func ACME(a Authority) (*Source, error) {
	if a.HTTPPort == 0 && a.HTTPSPort == 0 {
		return nil, errors.New("acme: neither an HTTP nor an HTTPS port, so no challenge can be answered")
	}
	if a.URL == "" {
		a.URL = certmagic.LetsEncryptProductionCA
	}
	if a.Allow == nil {
		a.Allow = func(context.Context, string) error { return errors.New("no further names") }
	}
	if a.capacity == 0 {
		a.capacity = maxACMECerts
	}
	if a.Now == nil {
		a.Now = time.Now
	}
	// Two configurations: certmagic obtains in advance only without OnDemand,
	// and asks Allow only with it. Each has a cache, as from a full one any
	// certificate may go, and one that is not there is not renewed.
	var host, further *certmagic.Config
	hosts, furthers := newCache(&host, 0), newCache(&further, a.capacity)
	host, issuer := a.config(hosts, nil, a.event)
	asking := &onDemand{Authority: a, rests: make(map[string]time.Time)}
	further, _ = a.config(furthers, &certmagic.OnDemandConfig{DecisionFunc: a.Allow}, asking.event)
	s := &Source{
		get:   a.getter(host, further),
		start: func(ctx context.Context) error { return host.ManageAsync(ctx, []string{a.Host}) },
		close: func() {
			hosts.Stop()
			furthers.Stop()
		},
	}
	if a.HTTPPort != 0 {
		s.challenge = issuer.HTTPChallengeHandler
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

func (a Authority) config(cache *certmagic.Cache, onDemand *certmagic.OnDemandConfig, event eventFunc) (*certmagic.Config, *certmagic.ACMEIssuer) {
	c := certmagic.New(cache, certmagic.Config{
		DefaultServerName: a.Host,
		OnDemand:          onDemand,
		OnEvent:           event,
		OCSP:              certmagic.OCSPConfig{DisableStapling: true},
		Storage:           &storage{FileStorage: certmagic.FileStorage{Path: a.Dir}},
		Logger:            zap.NewNop(), // what matters comes as events
	})
	issuer := certmagic.NewACMEIssuer(c, certmagic.ACMEIssuer{
		CA:                      a.URL,
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

// getter returns the host's certificate where none can be had for the name
// asked for: other mail servers ask for all sorts of names and check none. The
// host's is asked of its own configuration alone: the other one would take it
// out of use when it is time to renew it, since Allow does not know it.
func (a Authority) getter(host, further *certmagic.Config) func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	return func(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
		if slices.Contains(hello.SupportedProtos, acmeProto) {
			return host.GetCertificate(hello)
		}
		asked := *hello
		asked.ServerName = serverName(hello)
		if asked.ServerName != "" && asked.ServerName != a.Host {
			ctx, stop := context.WithCancel(hello.Context())
			defer stop()
			if got, err := further.GetCertificateWithContext(context.WithValue(ctx, stopper{}, stop), &asked); err == nil {
				return got, nil
			}
		}
		asked.ServerName = a.Host
		return host.GetCertificate(&asked)
	}
}

func (a Authority) event(_ context.Context, event string, data map[string]any) error {
	switch event {
	case "cached_managed_cert":
		a.Log.Info("certificate in use", "names", data["sans"])
	case "cert_failed":
		a.Log.Error("certificate not obtained", "name", data["identifier"], "renewal", data["renewal"], "err", data["error"])
	}
	return nil
}

// storage is certmagic's, whose files would not survive a loss of power: it does
// not sync their folders.
type storage struct{ certmagic.FileStorage }

// Store writes the value of a key.
func (s *storage) Store(_ context.Context, key string, value []byte) error {
	path := s.Filename(key)
	if err := durable.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	return durable.WriteFile(path, value, 0o600)
}
