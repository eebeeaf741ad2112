// SPDX-License-Identifier: Apache-2.0

package spam

import (
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/mailstead/mailstead/internal/blob"
	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/db/dbtest"
	"github.com/mailstead/mailstead/internal/lease/leasetest"
	"github.com/mailstead/mailstead/internal/message"
)

// BenchmarkOwn checks a message of 4 KiB for an account without training, which is the common case.
func BenchmarkOwn(b *testing.B) {
	head := "From: ann@example.com\r\nTo: bob@demo.test\r\nSubject: bench\r\n\r\n"
	text := head + strings.Repeat("A line of some words that a person may have written\r\n", 75)
	d, _ := leasetest.Open(b, dbtest.SQLite(b))
	kept, err := (&blob.Store{DB: d, Now: time.Now}).FromBytes(b.Context(), []byte(text))
	if err != nil {
		b.Fatal(err)
	}
	log := slog.New(slog.DiscardHandler)
	own := &BuiltinFilter{Log: log, Bayes: NewBayes(Bayes{DB: d, Now: time.Now, Log: log})}
	m := &Message{
		To: []string{"bob@demo.test"}, Accounts: []db.ID{1}, Header: message.Header(head), Index: message.Scan([]byte(text)), Size: kept.Size, Open: kept.Open,
	}
	b.ReportAllocs()
	for b.Loop() {
		if got := own.Check(b.Context(), m); len(got) != 1 || got[0].Score != 0.5 {
			b.Fatalf("%+v", got)
		}
	}
}
