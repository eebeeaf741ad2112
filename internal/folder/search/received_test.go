// SPDX-License-Identifier: Apache-2.0

package search

import (
	"os"
	"slices"
	"testing"
	"time"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/db/dbtest"
	"github.com/mailstead/mailstead/internal/folder"
	"github.com/mailstead/mailstead/internal/folder/foldertest"
)

var (
	sowMessages = db.SQL(`INSERT INTO message (id, mailbox, blob, size, outbound, message_id, envelope, structure, account, domain, thread_id, reference, arrival_id, check_results, reply_references)
		WITH RECURSIVE n(i) AS (SELECT CAST($1 AS BIGINT) UNION ALL SELECT i + 1 FROM n WHERE i < $2)
		SELECT $3 + i * $4, CASE i % 10 WHEN 0 THEN CAST($6 AS BIGINT) ELSE $5 END, 0, 2000, 0, '<' || i || '@shop.example>', $8, $9,
			CASE i % 100 WHEN 7 THEN CAST(0 AS BIGINT) ELSE $7 END, 7, CASE i % 100 WHEN 7 THEN '' ELSE 't' || (i % 1000) END, i, i, '', $9 FROM n`)
	sowRows = db.SQL(`INSERT INTO folder_message (folder, uid, message, flags, keywords, modseq, size, internal_date, saved_at)
		WITH RECURSIVE n(i) AS (SELECT CAST($1 AS BIGINT) UNION ALL SELECT i + 1 FROM n WHERE i < $2)
		SELECT $5, i, $3 + i * $4, 0, '', 1, 2000, 0, 0 FROM n`)
)

// With many messages, a page of an account's received mail examines few of them, and all pages
// together show each once.
func TestReceivedMany(t *testing.T) {
	each(t, func(h *fixture) {
		n := int64(3_000)
		if os.Getenv("MAILSTEAD_SOAK") != "" {
			n = 1_000_000
		}
		other, account := foldertest.AddMailbox(h, h.Folders), h.DB.NewID()
		folders, err := h.List(h.ctx(), h.box)
		h.must(err)
		begin := time.Now().Add(-30 * 24 * time.Hour).Truncate(time.Millisecond)
		first := db.MinIDAt(begin)
		apart := db.MinIDAt(begin.Add(2*time.Second)) - first
		envelope := []byte(`(NIL "Your order" (("Ann" NIL "ann" "shop.example")) NIL NIL (("Bob" NIL "bob" "here.example")) NIL NIL NIL NIL)`)
		const chunk = 5000
		for lo := int64(1); lo <= n; lo += chunk {
			hi := min(lo+chunk-1, n)
			dbtest.Exec(h, h.DB, sowMessages.With(lo, hi, first, apart, h.box, other, account, envelope, []byte{}),
				sowRows.With(lo, hi, first, apart, folders[0].ID))
		}
		id := func(i int64) db.ID { return first + db.ID(i)*apart }
		read := func(what string, f MessageFilter, p db.Page) []db.ID {
			h.Helper()
			start := time.Now()
			found, _, _, err := h.ListReceived(h.ctx(), account, f, p)
			h.must(err)
			h.Logf("%s: %d in %v", what, len(found), time.Since(start))
			var ids []db.ID
			for _, k := range found {
				ids = append(ids, k.ID)
			}
			return ids
		}
		newest := func(from int64, fits func(int64) bool) (ids []db.ID) {
			for i := from; i > 0 && len(ids) < 50; i-- {
				if i%100 != 7 && fits(i) {
					ids = append(ids, id(i))
				}
			}
			return ids
		}
		all := func(int64) bool { return true }
		for _, c := range []struct {
			what string
			f    MessageFilter
			p    db.Page
			want []db.ID
		}{
			{"the newest", MessageFilter{}, db.Page{Limit: 50}, newest(n, all)},
			{"from the middle", MessageFilter{}, db.Page{Limit: 50, After: id(n / 2)}, newest(n/2-1, all)},
			{"before a day", MessageFilter{Until: id(n / 3).Time()}, db.Page{Limit: 50}, newest(n/3-1, all)},
			{"of a thread", MessageFilter{Thread: "t42"}, db.Page{Limit: 50}, newest(n, func(i int64) bool { return i%1000 == 42 })},
			{"by their sender and subject", MessageFilter{From: "shop.example", Words: []string{"order", "YOUR"}, To: "bob@here.example"}, db.Page{Limit: 50}, newest(n, all)},
			{"of nobody", MessageFilter{From: "none.example"}, db.Page{Limit: 50}, nil},
		} {
			if got := read(c.what, c.f, c.p); !slices.Equal(got, c.want) {
				h.Errorf("%s: %v, not %v", c.what, got, c.want)
			}
		}
		seen, p := 0, db.Page{Limit: 200}
		for last, more := db.ID(0), true; more && seen < 5000; {
			var found []folder.StoredMessage
			found, more, p.After, err = h.ListReceived(h.ctx(), account, MessageFilter{}, p)
			h.must(err)
			for _, k := range found {
				if last != 0 && k.ID >= last {
					h.Fatalf("%v comes behind %v", k.ID, last)
				}
				last = k.ID
			}
			seen += len(found)
		}
		if want := int(min(n-n/100, 5000)); seen < want {
			h.Errorf("%d of %d were seen", seen, want)
		}
	})
}
