// SPDX-License-Identifier: Apache-2.0

package mailio_test

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/mailstead/mailstead/internal/mailbox"
	"github.com/mailstead/mailstead/internal/mailio"
	"github.com/mailstead/mailstead/internal/server/servertest"
)

// ordinary returns an mbox of n average messages: a header of 2 KB and a text, in two parts, of
// size bytes.
func ordinary(n, size int) []byte {
	var b bytes.Buffer
	for i := range n {
		fmt.Fprintf(&b, "From ann@example.org Sat Nov 21 17:00:00 2026\nReturn-Path: <ann@example.org>\n%sFrom: Ann Lee <ann@example.org>\nTo: Bob <bob@demo.test>\nSubject: Letter %d\n"+
			"Date: Sat, 21 Nov 2026 17:00:00 +0000\nMessage-ID: <%d.%d@example.org>\nReferences: <1@example.org> <2@example.org>\nMIME-Version: 1.0\nContent-Type: multipart/alternative; boundary=b\nStatus: RO\n\n--b\nContent-Type: text/plain\n\n%s\n--b\nContent-Type: text/html\n\n%s\n--b--\n\n",
			strings.Repeat("Received: from mx.example.org (mx.example.org [192.0.2.1]) by mail.example.net with ESMTPS id 1; Sat, 21 Nov 2026 17:00:00 +0000\n", 12),
			i, size, i, strings.Repeat("A line of this text, as long as lines are.\n", size/86), strings.Repeat("<p>A line of this text, as long as it is.\n", size/86))
	}
	return b.Bytes()
}

func BenchmarkTransfer(b *testing.B) {
	for _, size := range []int{4 << 10, 30 << 10, 300 << 10} {
		s := servertest.Start(b)
		acc, err := s.Accounts.ByEmail(b.Context(), "you@demo.test")
		if err != nil {
			b.Fatal(err)
		}
		n := max(20, (32<<20)/size)
		file := ordinary(n, size)
		boxes := 0
		one := func(b *testing.B) mailio.ImportOptions {
			boxes++
			quota := 1000
			m, _, err := s.Mailboxes.Create(b.Context(), acc.ID, mailbox.CreateParams{Domain: s.Dev.Domain.ID, LocalPart: fmt.Sprintf("bench%d", boxes), QuotaMB: &quota})
			if err != nil {
				b.Fatal(err)
			}
			return mailio.ImportOptions{Account: acc.ID, Mailbox: m.ID}
		}
		var in mailio.ImportOptions
		b.Run(fmt.Sprintf("import/%dKB", size>>10), func(b *testing.B) {
			b.SetBytes(int64(len(file)))
			for b.Loop() {
				b.StopTimer()
				in = one(b)
				b.StartTimer()
				if r, err := s.Transfers.Import(b.Context(), in, bytes.NewReader(file)); err != nil || r.Imported != int64(n) {
					b.Fatalf("%+v, %v", r, err)
				}
			}
			b.ReportMetric(float64(n*b.N)/b.Elapsed().Seconds(), "msg/s")
		})
		b.Run(fmt.Sprintf("again/%dKB", size>>10), func(b *testing.B) {
			b.SetBytes(int64(len(file)))
			for b.Loop() {
				if r, err := s.Transfers.Import(b.Context(), in, bytes.NewReader(file)); err != nil || r.Skipped != int64(n) {
					b.Fatalf("%+v, %v", r, err)
				}
			}
			b.ReportMetric(float64(n*b.N)/b.Elapsed().Seconds(), "msg/s")
		})
		for _, format := range []string{mailio.Mbox, mailio.Maildir} {
			b.Run(fmt.Sprintf("%s/%dKB", format, size>>10), func(b *testing.B) {
				b.SetBytes(int64(len(file)))
				for b.Loop() {
					if err := s.Transfers.Export(b.Context(), mailio.ExportOptions{Account: acc.ID, Mailbox: in.Mailbox, Format: format}, io.Discard); err != nil {
						b.Fatal(err)
					}
				}
				b.ReportMetric(float64(n*b.N)/b.Elapsed().Seconds(), "msg/s")
			})
		}
	}
}
