// SPDX-License-Identifier: Apache-2.0

package relay_test

import (
	"crypto/sha256"
	"crypto/sha512"
	"crypto/tls"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/mailstead/mailstead/internal/cert/certtest"
	"github.com/mailstead/mailstead/internal/dns"
	"github.com/mailstead/mailstead/internal/dns/dnstest"
	"github.com/mailstead/mailstead/internal/queue"
)

// daneCase is a destination with one mail host, whose zone is signed.
type daneCase struct {
	name    string
	host    string   // its address: 127.0.0.1 has a chain of certificates, .2 only the leaf, .3 no TLS
	tlsa    []string // at the host
	more    []string // records in place of those that a case has; %d is the port
	want    string   // state and enhanced code
	stage   string
	tls     string // part of the timeline's TLS text
	reply   string // part of the reply
	silent  bool   // no connection is made
	spoiled string // name and type of a bogus record set
}

func daneCases(ca *certtest.CA, chain *tls.Config) []daneCase {
	leaf, root := chain.Certificates[0].Leaf, ca.Cert
	sum := func(b []byte) string { return fmt.Sprintf("%x", sha256.Sum256(b)) }
	long := func(b []byte) string { return fmt.Sprintf("%x", sha512.Sum512(b)) }
	key, bad := leaf.RawSubjectPublicKeyInfo, strings.Repeat("00", 32)
	const full, one, bare, none = "delivered 2.0.0", "127.0.0.1", "127.0.0.2", "127.0.0.3"
	verified, unmatched := ", verified: DANE", "DANE: TLS handshake: no TLSA record matches the certificate"
	return []daneCase{
		{name: "ee-key", host: one, tlsa: []string{"3 1 1 " + sum(key)}, want: full, stage: "final", tls: verified},
		{name: "ee-cert-sha512", host: one, tlsa: []string{"3 0 2 " + long(leaf.Raw)}, want: full, stage: "final", tls: verified},
		{name: "ee-cert-whole", host: one, tlsa: []string{fmt.Sprintf("3 0 0 %x", leaf.Raw)}, want: full, stage: "final", tls: verified},
		{name: "ee-key-whole", host: one, tlsa: []string{fmt.Sprintf("3 1 0 %x", key)}, want: full, stage: "final", tls: verified},
		{name: "ee-rollover", host: one, tlsa: []string{"3 1 1 " + bad, "3 1 1 " + sum(key)}, want: full, stage: "final", tls: verified},
		{name: "ee-mismatch", host: one, tlsa: []string{"3 1 1 " + bad}, want: "deferred 4.7.5", stage: "handshake", reply: unmatched},
		{name: "ee-weaker-digest", host: one, tlsa: []string{"3 1 1 " + sum(key), "3 1 2 " + bad + bad},
			want: "deferred 4.7.5", stage: "handshake", reply: unmatched},
		{name: "ee-key-of-the-authority", host: one, tlsa: []string{"3 1 1 " + sum(root.RawSubjectPublicKeyInfo)},
			want: "deferred 4.7.5", stage: "handshake", reply: unmatched},
		{name: "ee-without-tls", host: none, tlsa: []string{"3 1 1 " + sum(key)}, want: "deferred 4.7.4", stage: "starttls",
			reply: "DANE: TLS is required, and the host does not offer STARTTLS"},
		{name: "ta", host: one, tlsa: []string{"2 0 1 " + sum(root.Raw)}, want: full, stage: "final", tls: verified},
		{name: "ta-key", host: one, tlsa: []string{"2 1 2 " + long(root.RawSubjectPublicKeyInfo)}, want: full, stage: "final", tls: verified},
		{name: "ta-whole", host: bare, tlsa: []string{fmt.Sprintf("2 0 0 %x", root.Raw)}, want: full, stage: "final", tls: verified},
		{name: "ta-key-whole", host: bare, tlsa: []string{fmt.Sprintf("2 1 0 %x", root.RawSubjectPublicKeyInfo)}, want: full, stage: "final", tls: verified},
		{name: "ta-not-sent", host: bare, tlsa: []string{"2 0 1 " + sum(root.Raw)}, want: "deferred 4.7.5", stage: "handshake", reply: unmatched},
		{name: "ta-of-the-leaf", host: one, tlsa: []string{"2 1 1 " + sum(key)}, want: "deferred 4.7.5", stage: "handshake", reply: unmatched},
		{name: "ta-another-key", host: bare, tlsa: []string{fmt.Sprintf("2 1 0 %x", key)}, want: "deferred 4.7.5", stage: "handshake", reply: unmatched},
		{name: "other-name", host: one, tlsa: []string{"2 0 1 " + sum(root.Raw)}, want: "deferred 4.7.5", stage: "handshake",
			reply: "but the certificate is for another name"},
		{name: "next-hop", host: one, tlsa: []string{"2 0 1 " + sum(root.Raw)}, want: full, stage: "final", tls: verified},
		{name: "not-usable", host: one, tlsa: []string{"0 1 1 " + sum(key), "1 1 1 " + bad, "3 1 9 00", "3 2 1 " + bad, "3 1 1 00"}, want: full,
			stage: "final", tls: "TLS 1.3"},
		{name: "not-usable-without-tls", host: none, tlsa: []string{"1 1 1 " + bad}, want: "deferred 4.7.4", stage: "starttls",
			reply: "DANE, with no TLSA record that can be used: TLS is required"},
		{name: "hangs-up", host: "127.0.0.4", tlsa: []string{"3 1 1 " + sum(key)}, want: "deferred 4.7.4", stage: "starttls"},
		{name: "none-and-hangs-up", host: "127.0.0.4", want: full, stage: "final"},
		{name: "none", host: one, want: full, stage: "final", tls: "TLS 1.3"},
		{name: "none-without-tls", host: none, want: full, stage: "final"},
		{name: "bogus", host: one, tlsa: []string{"3 1 1 " + sum(key)}, spoiled: "tlsa", want: "deferred 4.7.5", stage: "policy", silent: true,
			reply: "DANE: the TLSA records of mx.bogus.signed.test could not be looked up"},
		{name: "bogus-mx", host: one, tlsa: []string{"3 1 1 " + sum(key)}, spoiled: "mx", want: "deferred 4.4.3", stage: "dns", silent: true},
		{name: "bogus-address", host: one, tlsa: []string{"3 1 1 " + sum(key)}, spoiled: "a", want: "deferred 4.4.3", stage: "dns", silent: true},
		{name: "implicit", more: []string{"implicit.signed.test. A 127.0.0.1", "_%d._tcp.implicit.signed.test. TLSA 3 1 1 " + bad},
			want: "deferred 4.7.5", stage: "handshake", reply: unmatched},
		{name: "alias", more: []string{
			"alias.signed.test. MX 10 mx.alias.signed.test.", "mx.alias.signed.test. CNAME end.alias.signed.test.",
			"end.alias.signed.test. A 127.0.0.1", "_%d._tcp.end.alias.signed.test. TLSA 3 1 1 " + bad,
			"_%d._tcp.mx.alias.signed.test. TLSA 3 1 1 " + sum(key)},
			want: "deferred 4.7.5", stage: "handshake", reply: unmatched},
		{name: "alias-pinned-itself", more: []string{
			"alias-pinned-itself.signed.test. MX 10 mx.alias-pinned-itself.signed.test.",
			"mx.alias-pinned-itself.signed.test. CNAME end.alias-pinned-itself.signed.test.",
			"end.alias-pinned-itself.signed.test. A 127.0.0.1", "_%d._tcp.mx.alias-pinned-itself.signed.test. TLSA 3 1 1 " + bad},
			want: "deferred 4.7.5", stage: "handshake", reply: unmatched},
		{name: "alias-out", more: []string{
			"alias-out.signed.test. MX 10 mx.alias-out.signed.test.", "mx.alias-out.signed.test. CNAME out.plain.test.",
			"out.plain.test. A 127.0.0.1", "_%d._tcp.mx.alias-out.signed.test. TLSA 3 1 1 " + bad},
			want: "deferred 4.7.5", stage: "handshake", reply: unmatched},
		{name: "host-not-signed", more: []string{
			"host-not-signed.signed.test. MX 10 mx.plain.test.", "mx.plain.test. A 127.0.0.1", "_%d._tcp.mx.plain.test. TLSA 3 1 1 " + bad},
			want: full, stage: "final", tls: "TLS 1.3"},
		{name: "second-host", more: []string{
			"second-host.signed.test. MX 10 a.second-host.signed.test.", "second-host.signed.test. MX 20 b.second-host.signed.test.",
			"a.second-host.signed.test. A 127.0.0.1", "b.second-host.signed.test. A 127.0.0.2",
			"_%d._tcp.a.second-host.signed.test. TLSA 3 1 1 " + bad, "_%d._tcp.b.second-host.signed.test. TLSA 3 1 1 " + sum(key)},
			want: full, stage: "final", tls: verified},
	}
}

// DANE with a real validating resolver and real TLS. Every case is a destination in a signed zone.
func TestDANE(t *testing.T) {
	l := bind(t, "127.0.0.1", "127.0.0.2", "127.0.0.3", "127.0.0.4")
	ca := certtest.New(t, "an authority of nobody's choice")
	names := []string{"next-hop.signed.test"}
	for _, n := range []string{"ta", "ta-key", "ta-whole", "ta-key-whole", "ta-not-sent", "ta-of-the-leaf"} {
		names = append(names, "mx."+n+".signed.test")
	}
	chain := ca.ServerConfig(names...)
	bare := chain.Clone()
	bare.Certificates = []tls.Certificate{chain.Certificates[0]}
	bare.Certificates[0].Certificate = chain.Certificates[0].Certificate[:1]
	var port uint16
	for i, c := range []*tls.Config{chain, bare, nil} {
		port = start(t, l[i], &sink{tls: c}).addr.Port()
	}
	start(t, l[3], &sink{tls: chain, answer: refuse("STARTTLS", drop)})

	cases := daneCases(ca, chain)
	var records []string
	for _, c := range cases {
		for _, r := range c.more {
			records = append(records, strings.ReplaceAll(r, "%d", fmt.Sprint(port)))
		}
		if c.host != "" {
			mx := "mx." + c.name + ".signed.test."
			records = append(records, c.name+".signed.test. MX 10 "+mx, mx+" A "+c.host)
			for _, tlsa := range c.tlsa {
				records = append(records, fmt.Sprintf("_%d._tcp.%s TLSA %s", port, mx, tlsa))
			}
		}
	}
	// An unsigned domain leads to a host whose TLSA records don't match.
	records = append(records, "plain.test. MX 10 mx.ee-mismatch.signed.test.")
	resolver, zone := dnstest.StartSigned(t, records...)
	for _, c := range cases {
		switch mx := "mx." + c.name + ".signed.test"; c.spoiled {
		case "tlsa":
			zone.CorruptSignature(fmt.Sprintf("_%d._tcp.%s", port, mx), "TLSA")
		case "mx":
			zone.CorruptSignature(c.name+".signed.test", "MX")
		case "a":
			zone.CorruptSignature(mx, "A")
		}
	}
	h := fixtureOn(t, port, nil, resolver)
	h.run()
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			a := h.attempt(h.send("bob@" + c.name + ".signed.test"))
			if got := strings.TrimSpace(string(a.Outcome) + " " + a.Enhanced); got != c.want || a.Stage != c.stage ||
				!strings.Contains(a.TLS, c.tls) || c.tls != "" && !strings.Contains(c.tls, "verified") && strings.Contains(a.TLS, "verified") ||
				!strings.Contains(a.Reply, c.reply) {
				t.Errorf("got %s at %s, TLS %q, reply %q\n%s", got, a.Stage, a.TLS, a.Reply, a.Transcript)
			}
			if c.silent && strings.Contains(a.Transcript, "connected") {
				t.Errorf("a host was asked:\n%s", a.Transcript)
			}
		})
	}
	if a := h.attempt(h.send("bob@plain.test")); a.Outcome != queue.Delivered || strings.Contains(a.TLS, "verified") {
		t.Errorf("a domain that is not signed: %+v", a)
	}
	// A resolver that is not trusted to validate proves nothing.
	h.router.DNS = wary(t, resolver)
	h.later(time.Hour)
	if a := h.attempt(h.send("bob@ee-mismatch.signed.test")); a.Outcome != queue.Delivered {
		t.Errorf("a resolver that is not trusted: %+v", a)
	}
}

// wary returns a resolver that trusts no server's AD bit.
func wary(t *testing.T, addr string) *dns.Resolver {
	t.Helper()
	r, err := dns.New(dnstest.Config(addr))
	if err != nil {
		t.Fatal(err)
	}
	return r
}
