// SPDX-License-Identifier: Apache-2.0

package dns_test

import (
	"testing"

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
	r := dnstest.Resolver(b, addr).Uncached()
	for b.Loop() {
		if _, err := r.MX(b.Context(), "demo.test"); err != nil {
			b.Fatal(err)
		}
	}
}
