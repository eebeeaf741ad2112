// SPDX-License-Identifier: Apache-2.0

package blob

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/mailstead/mailstead/internal/db"
)

var newest = db.SQL(`SELECT file, size - LENGTH(bytes) FROM blob WHERE file > 0 AND file < $1 ORDER BY file DESC LIMIT $2`)

// lookAtOnce is how many rows are read before their files are looked at.
const lookAtOnce = 500

// Wrong counts files that a look has found to be wrong: not there, of another size than
// their rows say, or not to be looked at.
type Wrong struct {
	Looked                int
	Missing, Size, Barred int
	First                 string // the path of the first of them
	Err                   error  // of the first that can't be looked at
}

// LookAtFiles looks whether the files that the newest rows name are in the folder
// with their size: at most that many rows, or all if it is 0.
func LookAtFiles(ctx context.Context, r db.Reader, dir string, most int) (w Wrong, err error) {
	type row struct {
		file db.ID
		size int64
	}
	f := &Folder{dir: dir}
	before := row{file: 1<<63 - 1}
	for most == 0 || w.Looked < most {
		some, err := db.All(ctx, r, newest.With(before.file, lookAtOnce), func(r db.Row) (x row, err error) {
			return x, r.Scan(&x.file, &x.size)
		})
		if err != nil || len(some) == 0 {
			return w, err
		}
		for _, x := range some {
			if x.file == before.file {
				continue // several rows may share a file
			}
			before = x
			w.Looked++
			info, err := os.Stat(f.path(x.file))
			if err == nil && info.Size() == x.size {
				continue
			}
			if err := r.One(ctx, named.With(x.file), new(int64)); errors.Is(err, db.ErrNoRow) {
				continue // deleted between the two looks
			} else if err != nil {
				return w, err
			}
			if w.First == "" {
				w.First = f.path(x.file)
			}
			switch {
			case err == nil:
				w.Size++
			case errors.Is(err, fs.ErrNotExist):
				w.Missing++
			default: // the others may be there
				w.Barred, w.Err = w.Barred+1, cmp.Or(w.Err, err)
			}
		}
	}
	return w, nil
}

// Owner says which service's files are in a folder, and of which database, as
// OpenFolder and Ours note it; "" if none is noted, and used whether any service
// ever kept files there.
func Owner(dir string) (owner, database string, used bool, err error) {
	if _, err := os.Stat(filepath.Join(dir, "new")); errors.Is(err, fs.ErrNotExist) {
		return "", "", false, nil
	} else if err != nil {
		return "", "", false, err
	}
	if owner, err = noted(dir, ownerFile); err == nil {
		database, err = noted(dir, databaseFile)
	}
	return owner, database, true, err
}

func noted(dir, file string) (string, error) {
	text, err := os.ReadFile(filepath.Join(dir, file))
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return strings.TrimSpace(string(text)), err
}
