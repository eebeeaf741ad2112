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

// maxCachedCerts is how many certificates for further names are cached in memory.
const maxCachedCerts = 10_000

// ACMEOptions configure NewACME.
type ACMEOptions struct {
	Dir          string         // directory of the account and the certificates
	Host         string         // the service's own host name
	Email        string         // contact address for the authority; may be empty
	DirectoryURL string         // directory URL of the authority; Let's Encrypt if empty
	Roots        *x509.CertPool // trusted roots for its TLS certificate; the system's if nil

	// Bind is the address, and HTTPPort and HTTPSPort are the ports, of the servers that the
	// authority reaches at ports 80 and 443. Port 0 disables the port's challenge (HTTP-01,
	// TLS-ALPN-01).
	Bind      string
	HTTPPort  int
	HTTPSPort int

	// AllowName returns nil if a further name may have a certificate when a client asks for it.
	// Each certificate costs the authority work, and counts against our limits there. If AllowName
	// is nil, no further name gets one.
	AllowName func(ctx context.Context, name string) error

	DNS *dns.Resolver    // checks whether a further name points here
	Now func() time.Time // clock for failures; time.Now if nil
	Log *slog.Logger     // logs certificates that come into use, and failures

	cacheCapacity int // maxCachedCerts if 0
}

// NewACME returns a source that obtains certificates from an ACME authority (RFC 8555) and renews
// them. It obtains the host's from Start on, and those for further names when a client first asks
// for them. Its use means agreement to the authority's terms.
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
	// Two configurations: certmagic obtains certificates in advance only without OnDemand, and
	// calls AllowName only with it. Each has its own cache, because a full cache may drop any
	// certificate, and certificates outside the cache are not renewed.
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

// newCache returns a cache, unlimited if capacity is 0, for the configuration that *c will point
// to.
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
		Logger:            zap.NewNop(), // important things come as events
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

// getCertificateFunc returns the GetCertificate function. If there is no certificate for the
// requested name, it returns the host's, because other mail servers ask for any name and check
// none. It requests the host's certificate only from the host's own configuration: the other one
// would remove it when its renewal is due, since AllowName rejects it.
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

// syncedStorage is certmagic's storage with synced directories. Without that, its files might not
// survive a power failure.
type syncedStorage struct{ certmagic.FileStorage }

// Store durably writes the value of a key.
func (s *syncedStorage) Store(_ context.Context, key string, value []byte) error {
	path := s.Filename(key)
	if err := durable.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	return durable.WriteFile(path, value, 0o600)
}
