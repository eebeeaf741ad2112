// SPDX-License-Identifier: Apache-2.0

package db_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/mailstead/mailstead/internal/db"
)

// Other users of the machine can't read the database file and its logs, which contain all mail,
// even if the files were created readable.
func TestPrivate(t *testing.T) {
	for _, made := range []bool{false, true} {
		file := filepath.Join(t.TempDir(), "mailstead.db")
		if made {
			if err := os.WriteFile(file, nil, 0o600); err != nil {
				t.Fatal(err)
			}
			if err := os.Chmod(file, 0o644); err != nil { // regardless of the umask
				t.Fatal(err)
			}
		}
		d, err := db.Open(t.Context(), db.Options{URL: "sqlite:" + file})
		if err != nil {
			t.Fatal(err)
		}
		id := d.NewID()
		if err := d.Write(t.Context(), id, &db.Mutation{Apply: add(id)}); err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{file, file + "-wal", file + "-shm"} {
			if info, err := os.Stat(name); err != nil || info.Mode()&0o007 != 0 {
				t.Errorf("made before %v: %v, %v", made, info, err)
			}
		}
		if err := d.Close(); err != nil {
			t.Fatal(err)
		}
	}
}
