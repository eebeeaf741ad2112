// SPDX-License-Identifier: Apache-2.0

package outbound_test

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/mailstead/mailstead/internal/address"
	"github.com/mailstead/mailstead/internal/outbound"
	"github.com/mailstead/mailstead/internal/server/servertest"
)

// BenchmarkSubmit measures accepting a submission of 4 KiB, including its commit.
func BenchmarkSubmit(b *testing.B) {
	s := servertest.Start(b)
	m, err := s.Mailboxes.ByID(b.Context(), s.Dev.Mailboxes[1].ID)
	if err != nil {
		b.Fatal(err)
	}
	from, _ := address.Parse("bob@demo.test")
	to, _ := address.Parse("carol@elsewhere.test")
	text := "From: bob@demo.test\r\nTo: carol@elsewhere.test\r\nSubject: bench\r\nDate: Sat, 21 Nov 2026 01:02:03 +0000\r\nMessage-ID: <x@demo.test>\r\n\r\n" +
		strings.Repeat("0123456789012345678901234567890123456789012345678901234567890123\r\n", 62)
	for b.Loop() {
		if _, err := s.Outbox.Submit(b.Context(), m, outbound.Submission{From: &from, To: []outbound.SubmissionRecipient{{Address: to}}}, strings.NewReader(text)); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkSend measures accepting many concurrent API sends, including their commits.
func BenchmarkSend(b *testing.B) {
	s := servertest.Start(b)
	p, err := s.Accounts.Authenticate(b.Context(), s.Dev.APIKey, netip.MustParseAddr("127.0.0.1"))
	if err != nil {
		b.Fatal(err)
	}
	one := outbound.SendRequest{FromEmail: "bob@demo.test", To: []string{"carol@elsewhere.test"}, Subject: "bench", Text: strings.Repeat("0123456789012345678901234567890123456789012345678901234567890123\n", 62)}
	b.SetParallelism(32)
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if _, err := s.Outbox.Send(b.Context(), p, []outbound.SendRequest{one}, outbound.SendOptions{}); err != nil {
				b.Error(err)
			}
		}
	})
}
