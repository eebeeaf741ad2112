// SPDX-License-Identifier: Apache-2.0

package inbound_test

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/mailstead/mailstead/internal/db/dbtest"
	"github.com/mailstead/mailstead/internal/dns/dnstest"
	"github.com/mailstead/mailstead/internal/mailauth"
)

// benchMail is a message of 4 KiB.
func benchMail() string {
	return "From: ann@example.com\r\nTo: bob@demo.test\r\nSubject: bench\r\nMessage-ID: <1@example.com>\r\nDate: Mon, 2 Mar 2026 10:00:00 +0100\r\n\r\n" +
		strings.Repeat("0123456789012345678901234567890123456789012345678901234567890123\r\n", 60)
}

// BenchmarkAccept files messages durably, by 10 callers at once for each
// processor.
func BenchmarkAccept(b *testing.B) {
	body := benchMail()
	for name, url := range map[string]func(testing.TB) string{"sqlite": dbtest.SQLite, "postgres": dbtest.Postgres} {
		for _, boxes := range []int{1, 100} {
			b.Run(fmt.Sprintf("%s/mailboxes=%d", name, boxes), func(b *testing.B) {
				h := newFixture(b, url(b))
				for i := range boxes {
					h.box(fmt.Sprintf("box%d", i), 1<<20)
				}
				h.flood(b, body, boxes)
				b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "messages/s")
			})
		}
	}
}

// flood sends a message to each of the boxes in round-robin order.
func (h *fixture) flood(b *testing.B, body string, boxes int) {
	from := addr(b, "ann@example.com")
	var next atomic.Int64
	b.SetParallelism(10)
	b.ResetTimer()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			to := addr(b, fmt.Sprintf("box%d@demo.test", next.Add(1)%int64(boxes)))
			l := h.Begin(&from, int64(len(body)))
			if err := l.AddRecipient(b.Context(), to); err != nil {
				b.Error(err)
				return
			}
			if _, err := l.ReceiveMessage(b.Context(), received, strings.NewReader(body)); err != nil {
				b.Error(err)
				return
			}
		}
	})
}

// BenchmarkVerify is BenchmarkAccept for a message with two signatures (RSA and Ed25519) whose DNS
// answers are cached, with and without verification.
func BenchmarkVerify(b *testing.B) {
	s := mailauth.Signer{Domain: "example.com"}
	addr, zone := dnstest.Start(b, `example.com. 3600 TXT "v=spf1 ip4:192.0.2.7 -all"`, `_dmarc.example.com. 3600 TXT "v=DMARC1; p=reject"`,
		`7.2.0.192.in-addr.arpa. 3600 PTR client.example.`, `client.example. 3600 A 192.0.2.7`)
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
	sig, err := s.Sign([]byte(benchMail()))
	if err != nil {
		b.Fatal(err)
	}
	body := string(sig) + benchMail()
	for name, verify := range map[string]*mailauth.Verifier{"not": nil, "judged": {DNS: dnstest.Resolver(b, addr), Now: time.Now}} {
		b.Run(name, func(b *testing.B) {
			h := newFixture(b, dbtest.SQLite(b))
			h.Verifier = verify
			for i := range 100 {
				h.box(fmt.Sprintf("box%d", i), 1<<20)
			}
			h.flood(b, body, 100)
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "messages/s")
		})
	}
}
