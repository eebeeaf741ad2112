// SPDX-License-Identifier: Apache-2.0

package fulltext

import (
	"database/sql"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/db/dbtest"
	"github.com/mailstead/mailstead/internal/folder/search"
)

// TestFlippedBits checks that after any flipped bit in stored data, a search finds all messages or
// the damage.
func TestFlippedBits(t *testing.T) {
	h := newFixture(t, dbtest.SQLite(t))
	messages := 0
	docs := func(n int) (list []doc) {
		for range n {
			messages++
			d := doc{db.ID(messages), h.box, new(signature)}
			for _, kind := range []search.TextKind{1, search.BodyText} {
				d.signature.add(kind, []byte("subject"))
			}
			list = append(list, d)
		}
		return list
	}
	write := func(f func(tx *sql.Tx) error) {
		t.Helper()
		h.must(h.index.write(h.ctx(), f))
	}
	for range segmentFanout + 1 { // a segment, and a block without one
		write(func(tx *sql.Tx) error {
			if err := writeBlock(h.ctx(), tx, h.box, docs(blockDocs), pagesPerBlock); err != nil {
				return err
			}
			return buildSegments(h.ctx(), tx, h.box)
		})
	}
	write(func(tx *sql.Tx) error {
		if _, err := tx.ExecContext(h.ctx(), setIndexedThroughQuery, 1, h.box, 1); err != nil {
			return err
		}
		return addDocs(h.ctx(), tx, docs(100))
	})
	check := func(what string) (damage bool) {
		t.Helper()
		for _, kind := range []search.TextKind{1, search.BodyText} {
			found, err := h.index.Query(h.ctx(), h.box, search.IndexQuery{Folder: 1, LastUID: 1, Limit: 1 << 20, Clause: seek("subject", kind)})
			if isDamageError(err) {
				damage = true
			} else if h.must(err); len(found.Messages) != messages {
				t.Errorf("%s: %d messages found by kind %d, want %d", what, len(found.Messages), kind, messages)
			}
		}
		return damage
	}
	if check("whole") {
		t.Error("damage of a whole index")
	}
	r := rand.New(rand.NewPCG(13, 14))
	for _, c := range []struct{ table, id, blob string }{
		{"search_tail", "message", "sig"}, {"search_bundle", "id", "docs"}, {"search_block", "id", "ids"},
		{"search_slice", "id", "bits"}, {"search_shelf", "id", "blocks"}, {"search_field", "id", "bits"},
	} {
		ids, err := queryInt64s(h.ctx(), h.index.reader, fmt.Sprintf(`SELECT %s FROM %s`, c.id, c.table))
		h.must(err)
		stored := map[int64][]byte{}
		for _, id := range ids {
			var row []byte
			h.must(h.index.reader.QueryRowContext(h.ctx(), fmt.Sprintf(`SELECT %s FROM %s WHERE %s = ?`, c.blob, c.table, c.id), id).Scan(&row))
			stored[id] = row
		}
		store := func(change func(row []byte)) {
			write(func(tx *sql.Tx) error {
				for id, row := range stored {
					row = slices.Clone(row)
					change(row)
					if _, err := tx.ExecContext(h.ctx(), fmt.Sprintf(`UPDATE %s SET %s = ? WHERE %s = ?`, c.table, c.blob, c.id), row, id); err != nil {
						return err
					}
				}
				return nil
			})
		}
		for range 3 {
			store(func(row []byte) { row[r.IntN(len(row))] ^= 1 << r.IntN(8) })
			if !check(c.table) {
				t.Errorf("%s: the damage is not seen", c.table)
			}
		}
		store(func([]byte) {})
		if check(c.table) {
			t.Errorf("%s: damage that is mended", c.table)
		}
	}
}
