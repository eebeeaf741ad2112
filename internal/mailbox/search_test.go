// SPDX-License-Identifier: Apache-2.0

package mailbox_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/db/dbtest"
	"github.com/mailstead/mailstead/internal/mailbox"
)

// box is a mailbox that a search may find.
type box struct {
	id      db.ID
	domain  db.ID
	deleted bool
	text    string // in lower case
}

// manyBoxes creates n mailboxes in two domains; every fifth is deleted.
func (h *fixture) manyBoxes(n int) (all []box) {
	h.t.Helper()
	other := h.newDomainNamed(h.account, "other.test")
	names := []string{"Ann Lee", "MÜLLER, Jürgen", "50% _Bob_!", "", "Σίσυφος", "\U0010FFFF", "İpek", "a very long name that goes on and on", "zz"}
	noUse := db.SQL(`INSERT INTO mailbox_usage (mailbox, bytes, messages, over_since) SELECT id, 0, 0, 0 FROM mailbox`)
	var statements []db.Statement
	for i := range n {
		b := box{id: h.db.NewID(), domain: h.domain, deleted: i%5 == 4}
		address, name := fmt.Sprintf("user%d@demo.test", i), names[i%len(names)]
		if i%3 == 0 {
			b.domain, address = other, fmt.Sprintf("u_%d@other.test", i)
		}
		b.text = strings.ToLower(address + "\n" + name)
		all = append(all, b)
		deletedAt := int64(0)
		if b.deleted {
			deletedAt = db.Micros(h.now)
		}
		statements = append(statements, insertDirectly.With(b.id, h.account, b.domain, address[:strings.Index(address, "@")], address, name, mb, deletedAt))
	}
	dbtest.Exec(h.t, h.db, append(statements, noUse.With())...)
	if err := h.IndexAll(h.t.Context()); err != nil {
		h.t.Fatal(err)
	}
	return all
}

// wantFound compares all pages of a list with the expected result, in both directions.
func (h *fixture) wantFound(all []box, f mailbox.Filter) {
	h.t.Helper()
	var want []db.ID
	for _, b := range all {
		if b.deleted == f.Deleted && (f.Domain == 0 || b.domain == f.Domain) && strings.Contains(b.text, strings.ToLower(strings.TrimSpace(f.Search))) {
			want = append([]db.ID{b.id}, want...)
		}
	}
	read := func(next func(last db.ID) db.Page, add func(got, page []db.ID) []db.ID) (got []db.ID) {
		last := db.ID(0)
		for {
			list, more, err := h.List(h.t.Context(), h.account, f, next(last))
			if err != nil {
				h.t.Fatal(err)
			}
			var page []db.ID
			for _, b := range list {
				page = append(page, b.ID)
			}
			if got = add(got, page); !more || len(page) == 0 {
				return got
			}
			if last = page[len(page)-1]; next(1).Before > 0 {
				last = page[0]
			}
		}
	}
	older := read(func(last db.ID) db.Page { return db.Page{After: last, Limit: 100} }, func(got, page []db.ID) []db.ID { return append(got, page...) })
	newer := read(func(last db.ID) db.Page { return db.Page{Before: max(1, last), Limit: 100} }, func(got, page []db.ID) []db.ID { return append(page, got...) })
	if !slices.Equal(older, want) || !slices.Equal(newer, want) {
		h.t.Errorf("%q of domain %d, deleted %v: found %d, backwards %d, want %d", f.Search, f.Domain, f.Deleted, len(older), len(newer), len(want))
	}
}

// A search has the same results before and after mailboxes are renamed.
func TestSearchFindsAll(t *testing.T) {
	each(t, func(h *fixture) {
		ctx, t := h.t.Context(), h.t
		all := h.manyBoxes(640)
		searches := []string{"ann", "LEE", "müller", "MÜLLER", "%", "_", "!", "50%", "_bob_", "σίσυφος", "\U0010FFFF", "a\U0010FFFF", "i", "zz", "z", "u", "qq", "@",
			"user77", "user777", "user638@demo.test", "user637@demo.test", "demo.test", "er63", "u_3@other", "t\nann", "a very long name that", "name that goes on and on",
			"a very long name that goes on and on", "a very long name that goes off and on", "other.test.other.test.other.test.other.test.other.test.other.test"}
		for range 10 {
			text := []rune(all[rand.IntN(len(all))].text)
			from := rand.IntN(len(text))
			searches = append(searches, string(text[from:from+rand.IntN(len(text)-from)]))
		}
		round := 0
		check := func() {
			t.Helper()
			round++
			filters := []mailbox.Filter{{}, {Domain: h.domain}, {Deleted: true}, {Domain: h.domain, Deleted: true}}
			for i, s := range searches {
				if strings.Contains(s, "\n") {
					continue
				}
				f := filters[(i+round)%len(filters)]
				f.Search = s
				h.wantFound(all, f)
			}
		}
		check()
		// Some mailboxes are new or renamed.
		for i := range 3 {
			name := fmt.Sprint("Sören Renamed ", i)
			if _, err := h.Update(ctx, h.account, all[i].id, mailbox.Change{DisplayName: &name}); err != nil {
				t.Fatal(err)
			}
			password := good
			made, _, err := h.Create(ctx, h.account, mailbox.CreateParams{Domain: h.domain, LocalPart: fmt.Sprint("made-", i), DisplayName: name, Password: &password})
			if err != nil {
				t.Fatal(err)
			}
			b := &all[i]
			b.text = b.text[:strings.Index(b.text, "\n")+1] + strings.ToLower(name)
			all = append(all, box{id: made.ID, domain: h.domain, text: strings.ToLower(fmt.Sprint("made-", i, "@demo.test\n", name))})
		}
		searches = append(searches, "SÖREN", "renamed 1", "sören renamed 2", "ade-", "d 0")
		check()
		if list, _, err := h.List(ctx, h.account, mailbox.Filter{Search: "demo.test\nann"}, db.Page{}); err != nil || len(list) > 0 {
			t.Errorf("across address and name it finds %d, %v", len(list), err)
		}
	})
}

// A search with few matches looks them up and doesn't read all others. The pieces of a deleted
// mailbox or an old name are removed.
func TestSearchLooksUp(t *testing.T) {
	each(t, func(h *fixture) {
		ctx, t := h.t.Context(), h.t
		all := h.manyBoxes(400)
		found := func(search string, want int) {
			t.Helper()
			if list, _, err := h.List(ctx, h.account, mailbox.Filter{Search: search}, db.Page{}); err != nil || len(list) != want {
				t.Errorf("%q finds %d, %v", search, len(list), err)
			}
		}
		pieces := func(id db.ID) (n int) {
			t.Helper()
			if err := h.db.One(ctx, db.SQL(`SELECT COUNT(*) FROM mailbox_piece WHERE mailbox = $1`).With(id), &n); err != nil {
				t.Fatal(err)
			}
			return n
		}
		found("user1@", 1)
		dbtest.Exec(t, h.db, db.SQL(`DELETE FROM mailbox_piece WHERE mailbox = $1`).With(all[1].id))
		found("user1@", 0) // this means that it was found by its pieces

		for _, name := range []string{"A longer name than it had", "B", ""} {
			if _, err := h.Update(ctx, h.account, all[2].id, mailbox.Change{DisplayName: &name}); err != nil {
				t.Fatal(err)
			}
			text := "user2@demo.test\n" + strings.ToLower(name)
			if n := pieces(all[2].id); n != len(text) {
				t.Errorf("named %q it has %d pieces", name, n)
			}
		}
		if err := h.Delete(ctx, h.account, all[2].id); err != nil {
			t.Fatal(err)
		}
		h.now = h.now.Add(mailbox.RestorePeriod * 2)
		for n := 1; n > 0; {
			var err error
			if n, err = h.Purge(ctx); err != nil {
				t.Fatal(err)
			}
		}
		if n := pieces(all[2].id); n != 0 {
			t.Errorf("when it was purged it has %d pieces", n)
		}
	})
}
