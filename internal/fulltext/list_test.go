// SPDX-License-Identifier: Apache-2.0

package fulltext

import (
	"fmt"
	"slices"
	"testing"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/db/dbtest"
	"github.com/mailstead/mailstead/internal/folder"
	"github.com/mailstead/mailstead/internal/folder/search"
	"github.com/mailstead/mailstead/internal/mailbox"
)

var (
	setArrived = db.SQL(`UPDATE message SET account = $1 WHERE mailbox = $2`)
	setAccount = db.SQL(`UPDATE mailbox SET account = $1 WHERE id = $2`)
)

// list walks through a mailbox's messages in one direction or the other. It returns their subjects
// and the number of pages.
func (h *fixture) list(s *search.Searcher, f search.MessageFilter, back bool) (subjects []string, pages int) {
	h.Helper()
	h.must(f.Check())
	p := db.Page{Limit: 50}
	if back {
		p.Before = 1
	}
	for more := true; more; pages++ {
		found, goesOn, next, err := s.ListMessages(h.ctx(), h.box, f, p)
		h.must(err)
		for _, k := range found {
			subjects = append(subjects, k.Summary.Subject)
		}
		if more = goesOn; back {
			p.Before = next
		} else {
			p.After = next
		}
	}
	return subjects, pages
}

// A list of a mailbox's messages ends at once, with any number of messages, if the index or the
// folder shows that nothing matches.
func TestListEndsAtOnce(t *testing.T) {
	each(t, func(h *fixture) {
		h.plain.MaxScan, h.indexed.MaxScan = 300, 300
		texts := numbered(700)
		texts[17] = "Subject: =?utf-8?q?F=C3=BCr?= Orders\r\nFrom: Bob <BOB@Shop.Example>\r\nTo: a@here.example\r\nCc: carl@there.example\r\n\r\nx\r\n"
		h.append(h.box, folder.Inbox, texts...)
		h.append(h.box, "Archive", "Subject: put away\r\nFrom: a@example.com\r\n\r\nx\r\n")
		cases := []struct {
			f    search.MessageFilter
			want string
		}{
			{search.MessageFilter{Subject: "nowhere"}, "[]"},
			{search.MessageFilter{From: "nobody@example.com"}, "[]"},
			{search.MessageFilter{From: "none.example"}, "[]"},
			{search.MessageFilter{To: "none.example"}, "[]"},
			{search.MessageFilter{Words: []string{"number", "nowhere"}}, "[]"},
			{search.MessageFilter{Subject: "FÜR orders"}, "[Für Orders]"},
			{search.MessageFilter{Words: []string{"orders", "für"}, From: "shop.example"}, "[Für Orders]"},
			{search.MessageFilter{From: "bob@shop.example"}, "[Für Orders]"},
			{search.MessageFilter{To: "carl@THERE.example"}, "[Für Orders]"},
			{search.MessageFilter{Subject: "number 9 "}, "[number 9 of all]"},
			{search.MessageFilter{Subject: "number 9 ", Folder: "Archive"}, "[]"},
			{search.MessageFilter{Folder: "Archive"}, "[put away]"},
			{search.MessageFilter{Folder: "Drafts"}, "[]"},
			{search.MessageFilter{Thread: "none"}, "[]"},
		}
		check := func(when string, s *search.Searcher, most int) {
			t.Helper()
			for _, c := range cases {
				for _, back := range []bool{false, true} {
					got, pages := h.list(s, c.f, back)
					if fmt.Sprint(got) != c.want || pages > most {
						t.Errorf("%s: %+v, back %v: %q in %d pages", when, c.f, back, got, pages)
					}
				}
			}
		}
		check("without an index", h.plain, 3)
		check("nothing is indexed", h.indexed, 3)
		h.fill()
		check("indexed", h.indexed, 1)
		h.append(h.box, folder.Inbox, "Subject: late in nowhere\r\nFrom: x@none.example\r\n\r\nx\r\n")
		cases = cases[:0]
		for _, f := range []search.MessageFilter{{Subject: "nowhere"}, {From: "none.example"}, {Folder: folder.Inbox, Subject: "late"}} {
			cases = append(cases, struct {
				f    search.MessageFilter
				want string
			}{f, "[late in nowhere]"})
		}
		check("one is not indexed", h.indexed, 1)
		account, err := mailbox.AccountOf(h.ctx(), h.db, h.box)
		h.must(err)
		dbtest.Exec(t, h.db, setArrived.With(account, h.box), setAccount.With(account, h.newMailbox())) // an empty one, too
		for want, f := range map[string]search.MessageFilter{
			"[]": {Subject: "nobody knows"}, "[late in nowhere]": {Words: []string{"nowhere"}}, "[Für Orders]": {From: "shop.example", ReceivedOnly: true},
		} {
			found, more, _, err := h.indexed.ListReceived(h.ctx(), account, f, db.Page{})
			h.must(err)
			subjects := []string{}
			for _, k := range found {
				subjects = append(subjects, k.Summary.Subject)
			}
			if more || fmt.Sprint(subjects) != want {
				t.Errorf("received, %+v: %q, more %v", f, subjects, more)
			}
		}
	})
}

// Messages of a folder are listed without nearly empty pages, regardless of the number and position
// of messages in other folders.
func TestListOfFolder(t *testing.T) {
	each(t, func(h *fixture) {
		h.plain.MaxScan = 60 // fewer than the folder has
		all := numbered(600)
		h.append(h.box, "Archive", all[:100]...)
		h.append(h.box, folder.Inbox, all[100:300]...)
		h.append(h.box, "Archive", all[300:400]...)
		h.append(h.box, folder.Inbox, all[400:]...)
		for _, back := range []bool{false, true} {
			got, pages := h.list(h.plain, search.MessageFilter{Folder: "Archive"}, back)
			var want []string
			for i := range 4 {
				for j := 49; j >= 0; j-- {
					n := i*50 + j // of the 200 in the Archive, in pages of 50
					if !back {
						n = (3-i)*50 + j
					}
					if n >= 100 {
						n += 200
					}
					want = append(want, fmt.Sprintf("number %d of all", n))
				}
			}
			if !slices.Equal(got, want) || pages > 5 { // it may take one more page to learn that a full page was the last
				t.Errorf("back %v: %d in %d pages: %q", back, len(got), pages, got)
			}
		}
	})
}
