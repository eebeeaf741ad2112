// SPDX-License-Identifier: Apache-2.0

package mailauth_test

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	wire "github.com/miekg/dns"

	"github.com/mailstead/mailstead/internal/dns"
	"github.com/mailstead/mailstead/internal/dns/dnstest"
	"github.com/mailstead/mailstead/internal/mailauth"
)

// BenchmarkUnknownSendersWithLoss verifies mail of sixty domains that the resolver has not cached,
// while one DNS packet in 25 is lost.
func BenchmarkUnknownSendersWithLoss(b *testing.B) {
	const senders = 60
	var worst time.Duration
	for run := 0; b.Loop(); run++ {
		server, zone := dnstest.Start(b)
		path := dnstest.StartProxy(b, server, func(n int, _ *wire.Msg) dnstest.Fault { return dnstest.Fault{Drop: (n+run)%25 == 0} })
		r, err := dns.New(dns.Config{Server: path.Addr})
		if err != nil {
			b.Fatal(err)
		}
		j := &mailauth.Verifier{DNS: r, Now: time.Now}
		for i := range senders {
			name := fmt.Sprintf("d%d.org", i)
			zone.Add(name+`. TXT "v=spf1 ip4:9.2.0.0/16 -all"`, "_dmarc."+name+`. TXT "v=DMARC1; p=reject"`)
			began := time.Now()
			t := j.Begin([]byte("From: ann@" + name + "\r\n\r\n"))
			got := t.Verify(b.Context(), mailauth.ClientIdentity{IP: netip.MustParseAddr(fmt.Sprintf("9.2.%d.7", i)), Helo: name, From: "ann@" + name})
			if got.DMARC.Result != mailauth.Pass {
				b.Fatalf("%+v", got)
			}
			worst = max(worst, time.Since(began))
		}
	}
	b.ReportMetric(float64(worst.Milliseconds()), "worst-ms")
}
