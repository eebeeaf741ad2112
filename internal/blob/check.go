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

var newestFilesQuery = db.SQL(`SELECT file, size - LENGTH(bytes) FROM blob WHERE file > 0 AND file < $1 ORDER BY file DESC LIMIT $2`)

// checkBatchRows is how many rows are read before their files are looked at.
const checkBatchRows = 500

// FileCheck counts files that a look has found to be wrong: not there, of another size than
// their rows say, or not to be looked at.
type FileCheck struct {
	Checked                        int
	Missing, WrongSize, Unreadable int
	FirstPath                      string // the path of the first of them
	Err                            error  // of the first that can't be looked at
}

// CheckFiles looks whether the files that the newest rows name are in the folder
// with their size: at most that many rows, or all if it is 0.
func CheckFiles(ctx context.Context, r db.Reader, dir string, most int) (w FileCheck, err error) {
	type row struct {
		file db.ID
		size int64
	}
	f := &Dir{dir: dir}
	before := row{file: 1<<63 - 1}
	for most == 0 || w.Checked < most {
		some, err := db.All(ctx, r, newestFilesQuery.With(before.file, checkBatchRows), func(r db.Row) (x row, err error) {
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
			w.Checked++
			info, err := os.Stat(f.path(x.file))
			if err == nil && info.Size() == x.size {
				continue
			}
			if err := r.One(ctx, fileReferenceQuery.With(x.file), new(int64)); errors.Is(err, db.ErrNoRow) {
				continue // deleted between the two looks
			} else if err != nil {
				return w, err
			}
			if w.FirstPath == "" {
				w.FirstPath = f.path(x.file)
			}
			switch {
			case err == nil:
				w.WrongSize++
			case errors.Is(err, fs.ErrNotExist):
				w.Missing++
			default: // the others may be there
				w.Unreadable, w.Err = w.Unreadable+1, cmp.Or(w.Err, err)
			}
		}
	}
	return w, nil
}

// DirOwner says which service's files are in a folder, and of which database, as
// OpenDir and Ours note it; "" if none is noted, and used whether any service
// ever kept files there.
func DirOwner(dir string) (owner, database string, used bool, err error) {
	if _, err := os.Stat(filepath.Join(dir, "new")); errors.Is(err, fs.ErrNotExist) {
		return "", "", false, nil
	} else if err != nil {
		return "", "", false, err
	}
	if owner, err = readNote(dir, ownerFile); err == nil {
		database, err = readNote(dir, databaseFile)
	}
	return owner, database, true, err
}

func readNote(dir, file string) (string, error) {
	text, err := os.ReadFile(filepath.Join(dir, file))
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return strings.TrimSpace(string(text)), err
}
