// SPDX-License-Identifier: Apache-2.0

package folder

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/mailstead/mailstead/internal/db/dbtest"
	"github.com/mailstead/mailstead/internal/folder/snapshot"
	"github.com/mailstead/mailstead/internal/lease/leasetest"
)

// eachBench runs f on both engines, with a folder of n messages of 8 KiB.
func eachBench(b *testing.B, n int, f func(b *testing.B, h *fixture, v *View)) {
	for name, url := range map[string]func(testing.TB) string{"sqlite": dbtest.SQLite, "postgres": dbtest.Postgres} {
		b.Run(name, func(b *testing.B) {
			d, node := leasetest.Open(b, url(b))
			h := newFixture(b, d, node)
			one := h.upload(mail("about something", strings.Repeat("All work and no play makes Jack a dull boy.\r\n", 180)), 0)
			for n := n; n > 0; n -= 500 {
				var all []Upload
				for range min(n, 500) {
					u := one
					u.Blob = h.Blobs.Prepend(one.Blob, nil)
					all = append(all, u)
				}
				_, _, err := h.Append(h.ctx(), h.box, Inbox, all...)
				h.must(err)
			}
			v := h.view(Inbox)
			b.ResetTimer()
			f(b, h, v)
		})
	}
}

const many = 10_000

func BenchmarkSelect(b *testing.B) {
	eachBench(b, many, func(b *testing.B, h *fixture, v *View) {
		for b.Loop() {
			v, err := h.Open(h.ctx(), h.box, Inbox, false)
			h.must(err)
			v.Close()
		}
	})
}

func BenchmarkFirstSelect(b *testing.B) {
	eachBench(b, many, func(b *testing.B, h *fixture, v *View) {
		for b.Loop() {
			s := New(h.Options)
			v, err := s.Open(h.ctx(), h.box, Inbox, false)
			h.must(err)
			v.Close()
		}
	})
}

func benchFetch(b *testing.B, want FetchFields) {
	eachBench(b, many, func(b *testing.B, h *fixture, v *View) {
		uids := v.snap.UIDs()
		for b.Loop() {
			n := 0
			h.must(v.Fetch(h.ctx(), uids, want, func(*MessageRow) error { n++; return nil }))
			if n != many {
				b.Fatal(n)
			}
		}
	})
}

func BenchmarkFetchFlags(b *testing.B)    { benchFetch(b, 0) }
func BenchmarkFetchEnvelope(b *testing.B) { benchFetch(b, FetchEnvelope|FetchDates) }
func BenchmarkFetchAll(b *testing.B)      { benchFetch(b, FetchEnvelope|FetchStructure|FetchDates) }

func benchStore(b *testing.B, n int) {
	eachBench(b, many, func(b *testing.B, h *fixture, v *View) {
		uids := v.snap.UIDs()[:n]
		op := RemoveFlags
		for b.Loop() {
			if op++; op > RemoveFlags {
				op = AddFlags
			}
			_, _, err := v.UpdateFlags(h.ctx(), uids, FlagUpdate{Op: op, Flags: Seen})
			h.must(err)
			h.sync(v, false)
		}
	})
}

// BenchmarkFetchBody reads single messages in random order, as people do.
func BenchmarkFetchBody(b *testing.B) {
	eachBench(b, many, func(b *testing.B, h *fixture, v *View) {
		for i := 0; b.Loop(); i++ {
			h.must(v.Fetch(h.ctx(), numbers(uint32(1+i*7919%many)), FetchContent, func(r *MessageRow) error { return nil }))
		}
	})
}

func BenchmarkStoreAll(b *testing.B) { benchStore(b, many) }
func BenchmarkStoreOne(b *testing.B) { benchStore(b, 1) }

func BenchmarkCopy1000(b *testing.B) {
	eachBench(b, many, func(b *testing.B, h *fixture, v *View) {
		for b.Loop() {
			_, err := v.Copy(h.ctx(), v.snap.UIDs()[:1000], "Archive")
			h.must(err)
		}
	})
}

func BenchmarkMove1000(b *testing.B) {
	eachBench(b, many, func(b *testing.B, h *fixture, v *View) {
		from, to := v, h.view("Archive")
		for b.Loop() {
			if from.Len() < 1000 {
				from, to = to, from
			}
			_, err := from.Move(h.ctx(), from.snap.UIDs()[:1000], to.row.Name)
			h.must(err)
			b.StopTimer()
			h.sync(from, true)
			h.sync(to, true)
			b.StartTimer()
		}
	})
}

func BenchmarkExpunge1000(b *testing.B) {
	eachBench(b, many, func(b *testing.B, h *fixture, v *View) {
		for b.Loop() {
			b.StopTimer()
			if v.Len() < 1000 {
				archive := h.view("Archive")
				_, err := archive.Copy(h.ctx(), archive.snap.UIDs(), Inbox)
				h.must(err)
			} else if v.Len() == many {
				_, err := v.Copy(h.ctx(), v.snap.UIDs(), "Archive")
				h.must(err)
			}
			h.sync(v, true)
			_, _, err := v.UpdateFlags(h.ctx(), v.snap.UIDs()[:1000], FlagUpdate{Op: AddFlags, Flags: Deleted})
			h.must(err)
			b.StartTimer()
			_, err = v.Expunge(h.ctx(), nil)
			h.must(err)
			h.sync(v, true)
		}
	})
}

func benchFile(b *testing.B, callers int, file func(h *fixture, i int64, u Upload)) {
	eachBench(b, 0, func(b *testing.B, h *fixture, _ *View) {
		one := h.upload(mail("about something", strings.Repeat("All work and no play makes Jack a dull boy.\r\n", 90)), 0)
		var i atomic.Int64
		b.SetParallelism(callers)
		b.RunParallel(func(p *testing.PB) {
			for p.Next() {
				u := one
				u.Blob = h.Blobs.Prepend(one.Blob, nil)
				file(h, i.Add(1), u)
			}
		})
		b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "msg/s")
	})
}

func fileOne(h *fixture, _ int64, u Upload) {
	_, err := h.Deliver(h.ctx(), Delivery{Mailbox: h.box, Blob: u.Blob, Metadata: u.Metadata})
	h.must(err)
}

func BenchmarkDeliver2(b *testing.B)  { benchFile(b, 1, fileOne) }
func BenchmarkDeliver64(b *testing.B) { benchFile(b, 32, fileOne) }

// BenchmarkResync finds 100 changed messages and 100 UIDs of expunged ones, in a folder of a
// thousand and in one of a million.
func BenchmarkResync(b *testing.B) {
	for _, n := range []uint32{1_000, 1_000_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			var all []snapshot.Entry
			var gone []Range
			for uid := uint32(1); uid <= n; uid++ {
				switch {
				case uid%(n/100) == 1:
					gone = append(gone, Range{Lo: uid, Hi: uid})
				case uid%(n/100) == 2:
					all = append(all, snapshot.Entry{UID: uid, ModSeq: 2})
				default:
					all = append(all, snapshot.Entry{UID: uid, ModSeq: 1})
				}
			}
			v := &View{snap: (&snapshot.Snapshot{}).Apply(all, nil)}
			for b.Loop() {
				if changed, absent := v.ChangedIn(nil, 1), v.withoutPresent(gone); len(changed) != 100 || len(absent) != 100 {
					b.Fatal(len(changed), len(absent))
				}
			}
		})
	}
}
