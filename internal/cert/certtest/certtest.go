// SPDX-License-Identifier: Apache-2.0

// Package certtest issues certificates for tests.
package certtest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"math/big"
	"testing"
	"time"
)

// CA is a certificate authority.
type CA struct {
	t    testing.TB
	Cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// New returns an authority with that name, which its certificates have as their issuer.
func New(t testing.TB, name string) *CA {
	t.Helper()
	a := &CA{t: t}
	a.Cert, a.key = a.Issue(&x509.Certificate{
		Subject: pkix.Name{CommonName: name}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	})
	return a
}

// Intermediate returns an authority whose certificate this one signs.
func (a *CA) Intermediate(name string) *CA {
	a.t.Helper()
	b := &CA{t: a.t}
	b.Cert, b.key = a.Issue(&x509.Certificate{
		Subject: pkix.Name{CommonName: name}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	})
	return b
}

// Issue signs a certificate. The first one is self-signed.
func (a *CA) Issue(tmpl *x509.Certificate) (*x509.Certificate, *ecdsa.PrivateKey) {
	a.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.t.Fatal(err)
	}
	tmpl.SerialNumber = big.NewInt(time.Now().UnixNano())
	if tmpl.NotAfter.IsZero() {
		tmpl.NotBefore, tmpl.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	}
	parent, signer := a.Cert, a.key
	if parent == nil {
		parent, signer = tmpl, key
	}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, parent, &key.PublicKey, signer)
	if err != nil {
		a.t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		a.t.Fatal(err)
	}
	return cert, key
}

// ServerConfig returns the TLS configuration of a host, whose chain includes the authority.
func (a *CA) ServerConfig(names ...string) *tls.Config {
	cert, key := a.Issue(&x509.Certificate{Subject: pkix.Name{CommonName: names[0]}, DNSNames: names})
	return &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{cert.Raw, a.Cert.Raw}, PrivateKey: key, Leaf: cert}}}
}

// Pool returns a pool with the authority's certificate.
func (a *CA) Pool() *x509.CertPool {
	p := x509.NewCertPool()
	p.AddCert(a.Cert)
	return p
}
