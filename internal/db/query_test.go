// SPDX-License-Identifier: Apache-2.0

package db_test

import (
	"testing"

	"github.com/mailstead/mailstead/internal/db"
)

func TestReads(t *testing.T) {
	for text, want := range map[string]bool{
		`SELECT a FROM b`:                                       true,
		"\n\tSELECT a FROM b {for_update}":                      true,
		`SELECT a FROM b {skip_locked}`:                         true,
		`SELECT deleted_at FROM b WHERE updated_at = 0`:         true,
		`WITH c AS (SELECT a FROM b) SELECT a FROM c`:           true,
		`WITH c AS (SELECT a FROM b) DELETE FROM b`:             false,
		`WITH c AS (DELETE FROM b RETURNING a) SELECT a FROM c`: false,
		"WITH c AS (SELECT a FROM b)\nUPDATE b SET a = 1":       false,
		`INSERT INTO b (a) SELECT a FROM c`:                     false,
		"\n\t\tUPDATE b SET a = 1 RETURNING a":                  false,
		`DELETE FROM b`:                                         false,
		`COMMIT`:                                                false,
	} {
		if db.SQL(text).Reads() != want {
			t.Errorf("%q: reads is %v", text, !want)
		}
	}
}

// Only a plain INSERT has texts for several rows.
func TestRows(t *testing.T) {
	got := db.SQL("INSERT INTO a (b, c)\n\tVALUES ($1, $2)").Rows()
	want := []string{"($1, $2)", "($1, $2), ($3, $4)", "($1, $2), ($3, $4), ($5, $6), ($7, $8)",
		"($1, $2), ($3, $4), ($5, $6), ($7, $8), ($9, $10), ($11, $12), ($13, $14), ($15, $16)"}
	if len(got) != len(want) {
		t.Fatalf("%q", got)
	}
	for i, text := range want {
		if text = "INSERT INTO a (b, c)\n\tVALUES " + text; got[i] != text {
			t.Errorf("%q instead of %q", got[i], text)
		}
	}
	if got, want := db.SQL(`INSERT INTO a (b, c, d, e, f) VALUES ($2, 10, $1, 'x, y', $2)`).Rows(),
		`INSERT INTO a (b, c, d, e, f) VALUES ($2, 10, $1, 'x, y', $2), ($4, 10, $3, 'x, y', $4)`; len(got) != 4 || got[1] != want {
		t.Errorf("%q", got)
	}
	for _, text := range []string{
		`INSERT INTO a (b, c) VALUES ($1, {now})`,
		`INSERT INTO a (b, c) VALUES ($1, '$2')`,
		`INSERT INTO a (b, c) VALUES ($1, $2), ($3, $4)`,
		`INSERT INTO a (b, c) VALUES ($1, (SELECT d FROM e WHERE f = $2))`,
		`INSERT INTO a (b, c) VALUES ($1, $2) RETURNING b`,
		`INSERT INTO a (b, c) VALUES ($1, $2) ON CONFLICT DO NOTHING`,
		`INSERT INTO a (b, c) SELECT $1, $2`,
		`UPDATE a SET b = $1`,
	} {
		if got := db.SQL(text).Rows(); got != nil {
			t.Errorf("%s: %q", text, got)
		}
	}
}
