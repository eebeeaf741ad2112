// SPDX-License-Identifier: Apache-2.0

package dns_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/mailstead/mailstead/internal/dns"
	"github.com/mailstead/mailstead/internal/dns/dnstest"
)

func BenchmarkMXCached(b *testing.B) {
	addr, _ := dnstest.Start(b, "demo.test. 3600 MX 10 mx.demo.test.")
	r := dnstest.Resolver(b, addr)
	for b.Loop() {
		if _, err := r.MX(b.Context(), "demo.test"); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkMXAsked(b *testing.B) {
	addr, _ := dnstest.Start(b, "demo.test. 3600 MX 10 mx.demo.test.")
	r := dnstest.Resolver(b, addr).Fresh()
	for b.Loop() {
		if _, err := r.MX(b.Context(), "demo.test"); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkLossy is sixty senders that nobody knows, each with the questions that
// their mail brings, while one packet in 25 is lost, a question or an answer. What
// counts is the worst of them.
func BenchmarkLossy(b *testing.B) {
	addr, z := dnstest.Start(b)
	z.Lose(12) // of two packets
	r := dnstest.Resolver(b, addr)
	if _, err := r.TXT(b.Context(), "warm.test"); errors.Is(err, dns.ErrTemporary) {
		b.Fatal(err)
	}
	var worst time.Duration
	round := 0
	for b.Loop() {
		for i := range 60 {
			name := fmt.Sprintf("n%d-%d.test", round, i)
			began := time.Now()
			for _, ask := range []string{name, "k._domainkey." + name, "_dmarc." + name, "mx." + name} {
				if _, err := r.TXT(b.Context(), ask); errors.Is(err, dns.ErrTemporary) {
					b.Fatal(err)
				}
			}
			worst = max(worst, time.Since(began))
		}
		round++
	}
	b.ReportMetric(float64(worst.Milliseconds()), "worst-ms")
}
