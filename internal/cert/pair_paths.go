// SPDX-License-Identifier: Apache-2.0

package cert

import (
	"crypto/tls"
	"crypto/x509"
	"path/filepath"

	"github.com/caddyserver/certmagic"
)

// ACMEPair returns where NewACME stores a host's certificate.
func ACMEPair(dir, url, host string) FilePair {
	if url == "" {
		url = certmagic.LetsEncryptProductionCA
	}
	issuer := (&certmagic.ACMEIssuer{CA: url}).IssuerKey()
	return FilePair{
		CertFile: filepath.Join(dir, filepath.FromSlash(certmagic.StorageKeys.SiteCert(issuer, host))),
		KeyFile:  filepath.Join(dir, filepath.FromSlash(certmagic.StorageKeys.SitePrivateKey(issuer, host))),
	}
}

// SelfSignedPair returns where NewSelfSigned stores the host's certificate.
func SelfSignedPair(dir string) FilePair {
	return FilePair{CertFile: filepath.Join(dir, "host.pem"), KeyFile: filepath.Join(dir, "host.key")}
}

// LoadChain reads the certificate and the intermediates after it. The key must match.
func (p FilePair) LoadChain() (leaf *x509.Certificate, behind *x509.CertPool, err error) {
	pair, err := tls.LoadX509KeyPair(p.CertFile, p.KeyFile)
	if err != nil {
		return nil, nil, err
	}
	behind = x509.NewCertPool()
	for _, der := range pair.Certificate[1:] {
		if c, err := x509.ParseCertificate(der); err == nil {
			behind.AddCert(c)
		}
	}
	return pair.Leaf, behind, nil
}
