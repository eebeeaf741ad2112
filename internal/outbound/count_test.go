// SPDX-License-Identifier: Apache-2.0

package outbound_test

import (
	"context"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/db/dbtest"
	"github.com/mailstead/mailstead/internal/lease"
	"github.com/mailstead/mailstead/internal/server/servertest"
	"github.com/mailstead/mailstead/internal/stat"
)

// Every message is counted once, with its recipients, no matter which pass indexes it, how often,
// and by how many nodes at once.
func TestCounted(t *testing.T) {
	servertest.Each(t, func(t *testing.T, s *servertest.Server) {
		acc, err := s.Accounts.Create(t.Context(), "counted@example.com", "")
		if err != nil {
			t.Fatal(err)
		}
		g := &garden{t: t, s: s, account: acc.ID, random: rand.New(rand.NewPCG(1, 2))}
		second, err := lease.Join(t.Context(), s.DB, lease.Options{Name: "second", Holder: "another folder"})
		if err != nil {
			t.Fatal(err)
		}
		now := time.Now().Truncate(time.Microsecond)
		for round := range 4 {
			for i := range 60 {
				g.grow(now.Add(-time.Duration(30*(4-round)) * time.Hour / 4).Add(time.Duration(i) * 30 * time.Second))
			}
			var passing sync.WaitGroup
			for _, node := range []*lease.Node{s.Outbox.Node, s.Outbox.Node, second} {
				x := *s.Outbox.Index
				x.Node = node
				passing.Go(func() {
					for pass := range 3 {
						for more := true; more; {
							var err error
							if more, err = x.RunBatch(t.Context(), pass, now.Add(2*time.Hour)); err != nil {
								t.Error(err)
							}
						}
					}
				})
			}
			passing.Wait()
			// These are committed after the first pass has seen later ones.
			if round == 2 {
				for i := range 20 {
					g.grow(now.Add(-2*time.Hour - time.Duration(i)*time.Minute))
				}
			}
		}
		left, leave := context.WithCancel(t.Context())
		leave()
		if err := second.MaintainLease(left); err != nil { // the second node's lease expires
			t.Fatal(err)
		}
		// The last pass starts again from the beginning.
		dbtest.Exec(t, s.DB, beginAgain.With())
		for pass := range 3 {
			g.index(pass, g.all[0].id, 3*time.Hour)
		}
		for _, domain := range []db.ID{0, 5, 6} {
			periods, _, err := s.Stats.Read(t.Context(), stat.Query{Account: acc.ID, Domain: domain, Interval: stat.Hour, From: now.Add(-48 * time.Hour), To: now.Add(time.Hour)})
			if err != nil {
				t.Fatal(err)
			}
			for _, p := range periods {
				var want stat.Counts
				for _, m := range g.all {
					if m.created.UTC().Truncate(time.Hour).Equal(p.Start) && (domain == 0 || m.domain == domain) {
						want.Messages++
						want.Accepted += int64(len(m.to))
					}
				}
				if p.Counts != want {
					t.Errorf("domain %d at %v: got %+v, want %+v", domain, p.Start, p.Counts, want)
				}
			}
			_, total, err := s.Stats.Read(t.Context(), stat.Query{Account: acc.ID, Domain: domain, Tag: "a", Interval: stat.Day, From: now.Add(-48 * time.Hour), To: now.Add(time.Hour)})
			if err != nil {
				t.Fatal(err)
			}
			var want stat.Counts
			for _, m := range g.all {
				if strings.HasPrefix(m.tags, "a") && (domain == 0 || m.domain == domain) {
					want.Messages++
					want.Accepted += int64(len(m.to))
				}
			}
			if total != want {
				t.Errorf("domain %d with the tag a: got %+v, want %+v", domain, total, want)
			}
		}
	})
}

var beginAgain = db.SQL(`UPDATE outbound_index_progress SET position = 0 WHERE pass = 2`)
