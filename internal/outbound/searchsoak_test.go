// SPDX-License-Identifier: Apache-2.0

package outbound_test

import (
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/outbound/index"
	"github.com/mailstead/mailstead/internal/queue"
	"github.com/mailstead/mailstead/internal/server/servertest"
)

var (
	sowMessages = db.SQL(`INSERT INTO outbound_message (id, account, domain, mailbox, sender, returns_to, header_from, subject, message_id,
			thread_id, metadata, utf8, eight_bit, size, blob, expires_at, created_at, ret, envid, reference)
		WITH RECURSIVE n(i) AS (SELECT CAST($1 AS BIGINT) UNION ALL SELECT i + 1 FROM n WHERE i < $2)
		SELECT $3 + i * $4, $5, 7, 0, '', 'bounces.example', 'sender' || (i % 50) || '@shop.example',
			'Your order ' || i || CASE i % 4 WHEN 0 THEN ' was shipped' WHEN 1 THEN ' was paid' ELSE ' is on its way' END,
			'<' || i || '@shop.example>', 't' || (i % 50000), '{"order":"' || i || '","tenant":"t' || (i % 500) || '"}',
			FALSE, FALSE, 2000, 0, $6, $7 + i * $8, '', '', 0 FROM n`)
	sowDeliveries = db.SQL(`INSERT INTO delivery (message, n, account, recipient, kind, destination, state, due_at, expires_at,
			lease, attempts, sequence, code, enhanced, reply, remote_host, updated_at)
		WITH RECURSIVE n(i) AS (SELECT CAST($1 AS BIGINT) UNION ALL SELECT i + 1 FROM n WHERE i < $2)
		SELECT $3 + i * $4, 0, $5, 'user' || (i * 7919 % 200003) || '@d' || (i % 1000) || '.example', 'to', 'd' || (i % 1000) || '.example',
			CASE WHEN i % 100 = 0 THEN 'bounced' WHEN i % 1000 = 1 THEN 'deferred' ELSE 'delivered' END,
			$6, $6, NULL, 1, 1, 250, '2.0.0', 'OK', 'mx.example', $7 + i * $8 FROM n`)
)

// sow plants messages 1 to n, spread over a month.
func (g *garden) sow(n int64) (id func(i int64) db.ID, at func(i int64) time.Time) {
	g.t.Helper()
	begin := time.Now().Add(-30 * 24 * time.Hour).Truncate(time.Millisecond)
	step := min(25*24*time.Hour/time.Duration(n), time.Minute).Truncate(time.Millisecond)
	first := db.MinIDAt(begin)
	apart := db.MinIDAt(begin.Add(step)) - first
	const chunk = 5000
	for lo := int64(1); lo <= n; lo += chunk {
		args := []any{lo, min(lo+chunk-1, n), first, apart, g.account, int64(farAhead), db.Micros(begin), step.Microseconds()}
		err := g.s.DB.Tx(g.t.Context(), func(tx *db.Tx) error {
			for _, q := range []*db.Query{sowMessages, sowDeliveries} {
				if _, err := tx.Exec(g.t.Context(), q.With(args...)); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			g.t.Fatal(err)
		}
	}
	return func(i int64) db.ID { return first + db.ID(i)*apart }, func(i int64) time.Time { return begin.Add(time.Duration(i) * step) }
}

// Among many messages, each question is answered by looking at few of them.
func TestFindMany(t *testing.T) {
	servertest.Each(t, func(t *testing.T, s *servertest.Server) {
		acc, err := s.Accounts.Create(t.Context(), "garden@example.com", "")
		if err != nil {
			t.Fatal(err)
		}
		g := &garden{t: t, s: s, account: acc.ID}
		n := int64(servertest.SoakSize(6000, 1_000_000))
		begin := time.Now()
		id, at := g.sow(n)
		t.Logf("%d messages planted in %s", n, time.Since(begin).Round(time.Second))
		begin = time.Now()
		g.index(0, id(n), 0)
		t.Logf("made findable in %s", time.Since(begin).Round(time.Second))

		x := n / 2
		type f = index.Filter
		user := fmt.Sprintf("user%d@d%d.example", x*7919%200003, x%1000)
		every := func(step, from int64, also func(i int64) bool) (list []db.ID) {
			for i := n; i >= 1; i-- {
				if i%step == from%step && (also == nil || also(i)) {
					list = append(list, id(i))
				}
			}
			return list
		}
		only := []db.ID{id(x)}
		for _, q := range []struct {
			what   string
			filter f
			want   []db.ID
		}{
			{"all", f{}, every(1, 0, nil)},
			{"recipient", f{Recipients: []string{user}}, every(1000, x, func(i int64) bool { return i*7919%200003 == x*7919%200003 })},
			{"recipients of a domain", f{Recipients: []string{"d7.example"}}, every(1000, 7, nil)},
			{"sender", f{From: []string{"sender7@shop.example"}}, every(50, 7, nil)},
			{"sender's domain (all)", f{From: []string{"shop.example"}}, every(1, 0, nil)},
			{"a rare word", f{Subject: fmt.Sprint(x)}, only},
			{"a rare word and three common ones", f{Subject: fmt.Sprint("your order ", x, " was")}, only},
			{"two common words", f{Subject: "order paid"}, every(4, 1, nil)},
			{"words that are never together", f{Subject: "shipped paid"}, nil},
			{"metadata, rare", f{Metadata: map[string]string{"order": fmt.Sprint(x)}}, only},
			{"metadata, common", f{Metadata: map[string]string{"tenant": "t9"}}, every(500, 9, nil)},
			{"a key of metadata (all)", f{MetadataKeys: []string{"order"}}, every(1, 0, nil)},
			{"thread", f{Thread: fmt.Sprint("t", x%50000)}, every(50000, x, nil)},
			{"bounced", f{Statuses: []queue.State{queue.Bounced}}, every(100, 0, nil)},
			{"deferred", f{Statuses: []queue.State{queue.Deferred}}, every(1000, 1, nil)},
			{"delivered", f{Statuses: []queue.State{queue.Delivered}}, every(1, 0, func(i int64) bool { return i%100 != 0 && i%1000 != 1 })},
			{"queued (none)", f{Statuses: []queue.State{queue.Queued}}, nil},
			{"bounced of one tenant", f{Statuses: []queue.State{queue.Bounced}, Metadata: map[string]string{"tenant": "t400"}}, every(500, 400, func(i int64) bool { return i%100 == 0 })},
			{"an hour in the middle", f{Since: at(x), Until: at(x).Add(time.Hour)}, every(1, 0, func(i int64) bool { return i >= x && at(i).Before(at(x).Add(time.Hour)) })},
			{"a domain's in the older half", f{Recipients: []string{"d7.example"}, Until: at(x)}, every(1000, 7, func(i int64) bool { return i < x })},
			{"one sending domain (all)", f{Domains: []db.ID{7}}, every(1, 0, nil)},
			{"another (none)", f{Domains: []db.ID{8}}, nil},
		} {
			for _, back := range []bool{false, true} {
				page := db.Page{Limit: 50}
				want := q.want[:min(50, len(q.want))]
				if back {
					page.Before, want = 1, q.want[max(0, len(q.want)-50):]
				}
				g.firstPage(q.what, q.filter, page, want)
			}
		}
	})
}

// firstPage reads the first page, and continues while the page is empty.
func (g *garden) firstPage(what string, f index.Filter, page db.Page, want []db.ID) {
	g.t.Helper()
	var longest, all time.Duration
	var got []db.ID
	requests := 0
	back := page.Before != 0
	for {
		begin := time.Now()
		found, err := g.s.Outbox.Index.Find(g.t.Context(), g.account, f, page)
		took := time.Since(begin)
		if err != nil {
			g.t.Fatal(err)
		}
		longest, all, requests = max(longest, took), all+took, requests+1
		var some []db.ID
		for _, m := range found.Messages {
			some = append(some, m.ID)
		}
		if back {
			got, page.Before = append(some, got...), found.Next
		} else {
			got, page.After = append(got, some...), found.Next
		}
		page.Limit = 50 - len(got)
		if !found.More || page.Limit == 0 || requests == math.MaxInt8 {
			break
		}
	}
	if !slices.Equal(got, want) && requests < math.MaxInt8 {
		g.t.Errorf("%s, backwards %v: %d messages, want %d", what, back, len(got), len(want))
	}
	g.t.Logf("%-40s backwards %-5v %3d found in %3d requests, %7.1f ms; the longest %6.1f ms", what, back, len(got), requests,
		float64(all.Microseconds())/1000, float64(longest.Microseconds())/1000)
}
