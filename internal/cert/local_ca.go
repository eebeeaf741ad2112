// SPDX-License-Identifier: Apache-2.0

package cert

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

// The lifetimes of our own certificates. Systems reject leaf certificates of more than 398 days,
// even from authorities that their user added.
const (
	caLifetime   = 10 * 365 * 24 * time.Hour
	leafLifetime = 397 * 24 * time.Hour
	renewBefore  = 30 * 24 * time.Hour
	backdate     = time.Hour // for clients whose clock is behind
)

// CAFile returns the path of the authority's certificate (PEM) in a directory. Clients that trust
// it trust every certificate of NewSelfSigned.
func CAFile(dir string) string { return filepath.Join(dir, "ca.pem") }

// localCA is a certificate authority: its certificate and its key.
type localCA struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// openLocalCA reads the authority in a directory (ca.pem, ca.key), or creates one.
func openLocalCA(dir string, now time.Time) (*localCA, error) {
	certFile, keyFile := CAFile(dir), filepath.Join(dir, "ca.key")
	pair, err := readPair(certFile, keyFile)
	if errors.Is(err, fs.ErrNotExist) {
		// Clients may trust a certificate without its key already. A person must resolve that, so
		// don't replace it.
		if _, err := os.Stat(certFile); err == nil {
			return nil, fmt.Errorf("certificate authority: %s is there, but not its key %s; restore the key, or remove the certificate for a new authority", certFile, keyFile)
		}
		pair, err = createLocalCA(certFile, keyFile, now)
	}
	if err != nil {
		return nil, fmt.Errorf("certificate authority: %w", err)
	}
	key, ok := pair.PrivateKey.(*ecdsa.PrivateKey)
	if !ok || !pair.Leaf.IsCA {
		return nil, fmt.Errorf("certificate authority: %s is not one of ours", certFile)
	}
	if now.After(pair.Leaf.NotAfter) {
		return nil, fmt.Errorf("certificate authority: %s has expired; remove it and %s for a new one", certFile, keyFile)
	}
	return &localCA{cert: pair.Leaf, key: key}, nil
}

func createLocalCA(certFile, keyFile string, now time.Time) (*tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		SerialNumber:          newSerial(),
		Subject:               pkix.Name{CommonName: "Mailstead local authority " + rand.Text()[:6]},
		NotBefore:             now.Add(-backdate),
		NotAfter:              now.Add(caLifetime),
		IsCA:                  true,
		BasicConstraintsValid: true,
		MaxPathLenZero:        true,
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, err
	}
	return writePair(certFile, keyFile, [][]byte{der}, key)
}

// issue signs a certificate for names and addresses. The first name is its subject.
func (a *localCA) issue(now time.Time, ips []net.IP, names ...string) ([][]byte, *ecdsa.PrivateKey, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	template := &x509.Certificate{
		SerialNumber: newSerial(),
		NotBefore:    now.Add(-backdate),
		NotAfter:     now.Add(leafLifetime),
		KeyUsage:     x509.KeyUsageDigitalSignature,
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		DNSNames:     names,
		IPAddresses:  ips,
	}
	if len(names[0]) <= 64 { // limit of the subject (RFC 5280 A.1); DNSNames decide
		template.Subject.CommonName = names[0]
	}
	if template.NotAfter.After(a.cert.NotAfter) {
		template.NotAfter = a.cert.NotAfter
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, key.Public(), a.key)
	if err != nil {
		return nil, nil, fmt.Errorf("signing a certificate: %w", err)
	}
	return [][]byte{der, a.cert.Raw}, key, nil
}

// newSerial returns a random positive number of 127 bits (RFC 5280 §4.1.2.2).
func newSerial() *big.Int {
	b := make([]byte, 16)
	rand.Read(b)
	b[0] &= 0x7f
	b[15] |= 1
	return new(big.Int).SetBytes(b)
}
