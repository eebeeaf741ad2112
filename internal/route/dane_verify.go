// SPDX-License-Identifier: Apache-2.0

package route

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/sha512"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"slices"
	"time"

	"github.com/mailstead/mailstead/internal/dns"
)

var (
	errNoTLSAMatch  = errors.New("no TLSA record matches the certificate")
	errNameMismatch = errors.New("a TLSA record matches, but the certificate is for another name")
)

// verify checks a host's certificates against the TLSA records (RFC 7672 §3).
func (p *danePolicy) verify(st tls.ConnectionState) error {
	chain := st.PeerCertificates
	if len(chain) == 0 {
		return errNoTLSAMatch
	}
	if slices.ContainsFunc(p.records, func(t dns.TLSA) bool { return t.Usage == daneEE && matchesTLSA(t, chain[0]) }) {
		return nil // neither names nor dates matter (RFC 7672 §3.1.1)
	}
	anchored := false
	for _, root := range p.trustAnchors(chain) {
		anchored = anchored || chainsTo(root, chain)
	}
	switch {
	case !anchored:
		return errNoTLSAMatch
	case !slices.ContainsFunc(p.referenceNames, func(name string) bool { return chain[0].VerifyHostname(name) == nil }):
		return errNameMismatch
	}
	return nil
}

// trustAnchors returns the trust anchors that the records name: certificates that the host sent,
// and certificates and keys that DNS holds in full.
func (p *danePolicy) trustAnchors(chain []*x509.Certificate) []*x509.Certificate {
	var roots []*x509.Certificate
	for _, t := range p.records {
		if t.Usage != daneTA {
			continue
		}
		for _, c := range chain[1:] {
			if matchesTLSA(t, c) {
				roots = append(roots, c)
			}
		}
		switch {
		case t.Matching != 0:
		case t.Selector == 0:
			if c, err := x509.ParseCertificate(t.Data); err == nil {
				roots = append(roots, c)
			}
		default:
			if c := anchorFromKey(t.Data, chain); c != nil {
				roots = append(roots, c)
			}
		}
	}
	return roots
}

// anchorFromKey builds a stand-in for a trust anchor of which DNS holds only the key. It returns
// nil unless that key signed one of the certificates.
func anchorFromKey(spki []byte, chain []*x509.Certificate) *x509.Certificate {
	root := &x509.Certificate{
		Raw: spki, RawSubjectPublicKeyInfo: spki, Version: 3, BasicConstraintsValid: true, IsCA: true, MaxPathLen: -1,
		NotBefore: time.Unix(0, 0), NotAfter: time.Unix(1<<40, 0),
	}
	var err error
	if root.PublicKey, err = x509.ParsePKIXPublicKey(spki); err != nil {
		return nil
	}
	switch root.PublicKey.(type) {
	case *rsa.PublicKey:
		root.PublicKeyAlgorithm = x509.RSA
	case *ecdsa.PublicKey:
		root.PublicKeyAlgorithm = x509.ECDSA
	case ed25519.PublicKey:
		root.PublicKeyAlgorithm = x509.Ed25519
	}
	for _, c := range chain {
		if root.CheckSignature(c.SignatureAlgorithm, c.RawTBSCertificate, c.Signature) == nil {
			root.RawSubject, root.SubjectKeyId = c.RawIssuer, c.AuthorityKeyId
			return root
		}
	}
	return nil
}

// chainsTo reports whether the chain leads to a trust anchor.
func chainsTo(root *x509.Certificate, chain []*x509.Certificate) bool {
	o := x509.VerifyOptions{Roots: x509.NewCertPool(), Intermediates: x509.NewCertPool()}
	o.Roots.AddCert(root)
	for _, c := range chain[1:] {
		o.Intermediates.AddCert(c)
	}
	_, err := chain[0].Verify(o)
	return err == nil
}

// matchesTLSA reports whether a record matches a certificate (RFC 6698 §2.1).
func matchesTLSA(t dns.TLSA, c *x509.Certificate) bool {
	data := c.Raw
	if t.Selector == 1 {
		data = c.RawSubjectPublicKeyInfo
	}
	switch t.Matching {
	case 1:
		sum := sha256.Sum256(data)
		data = sum[:]
	case 2:
		sum := sha512.Sum512(data)
		data = sum[:]
	}
	return bytes.Equal(data, t.Data)
}
