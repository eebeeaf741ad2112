// SPDX-License-Identifier: Apache-2.0

package fulltext

import (
	"database/sql"
	"fmt"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"testing"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/folder/search"
)

// TestBundles checks that for every way messages enter and leave the write buffers, a search by a
// field finds each buffered message once and no other. The pages stay full, and the other mailbox
// has its own.
func TestBundles(t *testing.T) {
	x, err := Open(t.Context(), Options{Path: filepath.Join(t.TempDir(), "search.db")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = x.Close() })
	there := map[db.ID]map[db.ID]bool{1: {}, 2: {}}
	r, last := rand.New(rand.NewPCG(7, 8)), db.ID(0)
	write := func(f func(tx *sql.Tx) error) {
		t.Helper()
		if err := x.write(t.Context(), f); err != nil {
			t.Fatal(err)
		}
	}
	write(func(tx *sql.Tx) error {
		for box := range there {
			if _, err := tx.ExecContext(t.Context(), setIndexedThroughQuery, box, box, 1); err != nil {
				return err
			}
		}
		return nil
	})
	check := func(what string) {
		t.Helper()
		for box, want := range there {
			found, err := x.Query(t.Context(), box, search.IndexQuery{Folder: box, Clause: seek("subject", 1), Limit: 10_000})
			if err != nil {
				t.Fatal(err)
			}
			got := slices.Sorted(slices.Values(found.Messages))
			if !slices.Equal(got, slices.Sorted(maps.Keys(want))) {
				t.Fatalf("%s: %d messages found of %d", what, len(got), len(want))
			}
			sizes, err := queryInt64s(t.Context(), x.reader, `SELECT LENGTH(docs) / ? FROM search_bundle WHERE mailbox = ? ORDER BY id`, bufferEntryBytes, box)
			if err != nil {
				t.Fatal(err)
			}
			for i, n := range sizes {
				if n > bufferPageDocs || i < len(sizes)-1 && n < bufferPageDocs || n == 0 {
					t.Fatalf("%s: the bundles have %v", what, sizes)
				}
			}
		}
	}
	for step := range 120 {
		var docs []doc
		for range 1 + r.IntN(50) {
			last++
			d := doc{last, db.ID(1 + r.IntN(2)), new(signature)}
			d.signature.add(1, fmt.Appendf(nil, "subject %d", last))
			docs, there[d.mailbox][d.id] = append(docs, d), true
		}
		write(func(tx *sql.Tx) error { return addDocs(t.Context(), tx, docs) })
		if step < 60 && step%10 == 3 { // as after a restart that lost them
			write(func(tx *sql.Tx) error { return addDocs(t.Context(), tx, docs) })
		}
		if step < 60 && step%5 == 0 { // then they become blocks
			var gone []db.ID
			tail, err := queryInt64s(t.Context(), x.reader, `SELECT message FROM search_tail`)
			if err != nil {
				t.Fatal(err)
			}
			for _, id := range tail {
				if r.IntN(3) == 0 {
					gone = append(gone, db.ID(id))
					delete(there[1], db.ID(id))
					delete(there[2], db.ID(id))
				}
			}
			gone = append(gone, last+1) // which is in no write buffer
			write(func(tx *sql.Tx) error { return deleteBuffered(t.Context(), tx, gone) })
		}
		check(fmt.Sprintf("after %d steps", step+1))
	}
	if blocks, err := queryInt64s(t.Context(), x.reader, `SELECT DISTINCT mailbox FROM search_block`); err != nil || len(blocks) != 2 {
		t.Errorf("mailboxes %v have blocks, %v", blocks, err)
	}
	write(func(tx *sql.Tx) error {
		_, err := tx.ExecContext(t.Context(), `UPDATE search_bundle SET docs = ?`, appendChecksum(make([]byte, bufferEntryBytes+1)))
		return err
	})
	if _, err := x.Query(t.Context(), 1, search.IndexQuery{Folder: 1, Clause: seek("subject", 1), Limit: 10_000}); !isDamageError(err) {
		t.Errorf("a bundle that is cut off: %v", err)
	}
}
