// SPDX-License-Identifier: Apache-2.0

package mailauth_test

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/mailstead/mailstead/internal/dns/dnstest"
	"github.com/mailstead/mailstead/internal/mailauth"
)

// BenchmarkVerify verifies a message of 4 KiB with two signatures (RSA and Ed25519) whose DNS
// answers are cached.
func BenchmarkVerify(b *testing.B) {
	header := "From: ann@example.com\r\nTo: bob@demo.test\r\nSubject: bench\r\nMessage-ID: <1@example.com>\r\nDate: Mon, 2 Mar 2026 10:00:00 +0100\r\n"
	body := strings.Repeat("0123456789012345678901234567890123456789012345678901234567890123\r\n", 60)
	addr, zone := dnstest.Start(b, `example.com. 3600 TXT "v=spf1 ip4:192.0.2.7 -all"`, `_dmarc.example.com. 3600 TXT "v=DMARC1; p=reject"`,
		`7.2.0.192.in-addr.arpa. 3600 PTR client.example.`, `client.example. 3600 A 192.0.2.7`)
	s := mailauth.Signer{Domain: "example.com"}
	for _, a := range []mailauth.Algorithm{mailauth.RSA, mailauth.Ed25519} {
		key, err := mailauth.GenerateKey(a)
		if err != nil {
			b.Fatal(err)
		}
		record, err := mailauth.KeyRecord(key.Public())
		if err != nil {
			b.Fatal(err)
		}
		zone.Publish("TXT", string(a)+"._domainkey.example.com", record, nil)
		s.Keys = append(s.Keys, mailauth.Key{Selector: string(a), Private: key})
	}
	sig, err := s.Sign([]byte(header + "\r\n" + body))
	if err != nil {
		b.Fatal(err)
	}
	head, text := []byte(string(sig)+header), []byte(body)
	j := &mailauth.Verifier{DNS: dnstest.Resolver(b, addr), Now: time.Now}
	c := mailauth.ClientIdentity{IP: netip.MustParseAddr("192.0.2.7"), Helo: "client.example", From: "ann@example.com"}
	b.ReportAllocs()
	for b.Loop() {
		t := j.Begin(head)
		_, _ = t.Write(text)
		if got := t.Verify(b.Context(), c); got.DMARC.Result != mailauth.Pass || got.SPF.Result != mailauth.Pass || got.DKIMResult() != mailauth.Pass {
			b.Fatalf("%+v", got)
		}
	}
}
