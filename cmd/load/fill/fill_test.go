// SPDX-License-Identifier: Apache-2.0

package fill_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/mailstead/mailstead/cmd/load/fill"
	"github.com/mailstead/mailstead/internal/db/dbtest"
)

// Copies have the changed values, and otherwise those of their original.
func TestCopy(t *testing.T) {
	dir := t.TempDir()
	for engine, database := range map[string]string{"sqlite": "sqlite", "postgres": dbtest.Postgres(t)} {
		t.Run(engine, func(t *testing.T) {
			d, err := fill.Open(t.Context(), database, dir)
			if err != nil {
				t.Fatal(err)
			}
			for _, s := range []string{
				"CREATE TABLE thing (id BIGINT PRIMARY KEY, name TEXT NOT NULL, size BIGINT NOT NULL)",
				"INSERT INTO thing VALUES (1000, 'a', 5), (1001, 'b', 6)",
			} {
				if err := d.Exec(t.Context(), s); err != nil {
					t.Fatal(err)
				}
			}
			if err := d.Copy(t.Context(), "thing", "id = 1000", 3, fill.Values{"id": "r.id - k * 10", "name": "r.name || k"}); err != nil {
				t.Fatal(err)
			}
			ids, err := d.QueryInts(t.Context(), "SELECT id FROM thing WHERE size = 5 ORDER BY id")
			if err != nil || !slices.Equal(ids, []int64{970, 980, 990, 1000}) {
				t.Errorf("%v, %v", ids, err)
			}
			if n, err := d.QueryInt(t.Context(), "SELECT COUNT(*) FROM thing WHERE name = 'a3' AND id = 970"); err != nil || n != 1 {
				t.Errorf("%d, %v", n, err)
			}
			err = d.Copy(t.Context(), "thing", "id = 1000", 1, fill.Values{"other": "1"})
			if err == nil || !strings.Contains(err.Error(), "no column other") {
				t.Errorf("a column that is not there: %v", err)
			}
			if err := d.Close(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
}
