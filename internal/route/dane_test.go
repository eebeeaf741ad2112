// SPDX-License-Identifier: Apache-2.0

package route

import (
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"testing"
	"time"

	"github.com/mailstead/mailstead/internal/cert/certtest"
	"github.com/mailstead/mailstead/internal/dns"
)

func digest(b []byte) []byte {
	sum := sha256.Sum256(b)
	return sum[:]
}

// Of several digests of a kind only the strongest counts, besides full data. Records that are not
// supported don't count.
func TestUsable(t *testing.T) {
	short, long := make([]byte, 32), make([]byte, 64)
	cert := certtest.New(t, "root").Cert
	good := []dns.TLSA{
		{Usage: 3, Selector: 1, Matching: 2, Data: long}, {Usage: 3, Selector: 0, Matching: 1, Data: short},
		{Usage: 2, Selector: 1, Matching: 1, Data: short}, {Usage: 3, Selector: 1, Data: cert.RawSubjectPublicKeyInfo}, {Usage: 2, Data: cert.Raw},
	}
	bad := []dns.TLSA{
		{Usage: 3, Selector: 1, Matching: 1, Data: short}, // there is a stronger digest
		{Usage: 0, Matching: 1, Data: short}, {Usage: 1, Matching: 1, Data: short}, {Usage: 4, Matching: 1, Data: short}, {Usage: 255},
		{Usage: 3, Selector: 2, Matching: 1, Data: short}, {Usage: 3, Matching: 3, Data: short}, {Usage: 3, Matching: 1, Data: long},
		{Usage: 3, Matching: 2, Data: short}, {Usage: 3}, {Usage: 3, Data: cert.RawSubjectPublicKeyInfo}, {Usage: 3, Selector: 1, Data: cert.Raw},
		{Usage: 3, Selector: 1, Data: cert.RawSubjectPublicKeyInfo[1:]},
	}
	if got := usableTLSA(append(append([]dns.TLSA(nil), bad...), good...)); fmt.Sprint(got) != fmt.Sprint(good) {
		t.Errorf("usable are %v", got)
	}
}

// Dates and names don't matter if the host's own certificate is pinned, but they do if its trust
// anchor is.
func TestCheckDates(t *testing.T) {
	ca := certtest.New(t, "root")
	old, _ := ca.Issue(&x509.Certificate{DNSNames: []string{"mx.test"}, NotBefore: time.Unix(0, 0), NotAfter: time.Unix(1, 0)})
	st := tls.ConnectionState{PeerCertificates: []*x509.Certificate{old, ca.Cert}}
	ee := &danePolicy{referenceNames: []string{"other.test"}, records: []dns.TLSA{{Usage: 3, Matching: 1, Data: digest(old.Raw)}}}
	ta := &danePolicy{referenceNames: []string{"mx.test"}, records: []dns.TLSA{{Usage: 2, Matching: 1, Data: digest(ca.Cert.Raw)}}}
	if err := ee.verify(st); err != nil {
		t.Error(err)
	}
	if err := ta.verify(st); err == nil {
		t.Error("an expired certificate passed")
	}
	if err := ee.verify(tls.ConnectionState{}); err == nil {
		t.Error("no certificate passed")
	}
}

// A chain through an intermediate authority, pinned at either.
func TestCheckChains(t *testing.T) {
	root := certtest.New(t, "root")
	middle := root.Intermediate("middle")
	leaf := middle.ServerConfig("mx.test").Certificates[0].Leaf
	stranger := certtest.New(t, "root") // the same name, another key
	for _, c := range []struct {
		name  string
		chain []*x509.Certificate
		pin   dns.TLSA
		good  bool
	}{
		{"root, sent", []*x509.Certificate{leaf, middle.Cert, root.Cert}, dns.TLSA{Usage: 2, Matching: 1, Data: digest(root.Cert.Raw)}, true},
		{"middle", []*x509.Certificate{leaf, middle.Cert}, dns.TLSA{Usage: 2, Matching: 1, Data: digest(middle.Cert.Raw)}, true},
		{"root, whole", []*x509.Certificate{leaf, middle.Cert}, dns.TLSA{Usage: 2, Data: root.Cert.Raw}, true},
		{"root's key, whole", []*x509.Certificate{leaf, middle.Cert}, dns.TLSA{Usage: 2, Selector: 1, Data: root.Cert.RawSubjectPublicKeyInfo}, true},
		{"middle's key, whole", []*x509.Certificate{leaf}, dns.TLSA{Usage: 2, Selector: 1, Data: middle.Cert.RawSubjectPublicKeyInfo}, true},
		{"root, middle missing", []*x509.Certificate{leaf, root.Cert}, dns.TLSA{Usage: 2, Matching: 1, Data: digest(root.Cert.Raw)}, false},
		{"a stranger's root", []*x509.Certificate{leaf, middle.Cert, stranger.Cert}, dns.TLSA{Usage: 2, Matching: 1, Data: digest(stranger.Cert.Raw)}, false},
		{"a stranger's key", []*x509.Certificate{leaf, middle.Cert}, dns.TLSA{Usage: 2, Selector: 1, Data: stranger.Cert.RawSubjectPublicKeyInfo}, false},
		{"a root that signed nothing", []*x509.Certificate{stranger.ServerConfig("mx.test").Certificates[0].Leaf, root.Cert},
			dns.TLSA{Usage: 2, Matching: 1, Data: digest(root.Cert.Raw)}, false},
	} {
		p := &danePolicy{referenceNames: []string{"mx.test"}, records: usableTLSA([]dns.TLSA{c.pin})}
		if err := p.verify(tls.ConnectionState{PeerCertificates: c.chain}); (err == nil) != c.good {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

// Only records that match this chain's keys are accepted as proof.
func FuzzTLSA(f *testing.F) {
	ca := certtest.New(f, "root")
	leaf := ca.ServerConfig("mx.test").Certificates[0].Leaf
	st := tls.ConnectionState{PeerCertificates: []*x509.Certificate{leaf, ca.Cert}}
	f.Add(uint8(3), uint8(1), uint8(1), make([]byte, 32))
	f.Add(uint8(2), uint8(0), uint8(2), make([]byte, 64))
	f.Add(uint8(2), uint8(1), uint8(0), certtest.New(f, "other").Cert.RawSubjectPublicKeyInfo)
	f.Add(uint8(2), uint8(0), uint8(0), certtest.New(f, "other").Cert.Raw)
	f.Fuzz(func(t *testing.T, usage, selector, matching uint8, data []byte) {
		p := &danePolicy{referenceNames: []string{"mx.test"}, records: usableTLSA([]dns.TLSA{{Usage: usage, Selector: selector, Matching: matching, Data: data}})}
		if err := p.verify(st); err == nil {
			t.Errorf("%d %d %d %x proves something", usage, selector, matching, data)
		}
		_ = p.policyKey()
	})
}
