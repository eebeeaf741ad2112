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
