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

// checkBatchRows is the number of rows that are read before their files are checked.
const checkBatchRows = 500

// FileCheck is the result of CheckFiles: it counts files that are missing, have another size than
// their rows say, or can't be checked.
type FileCheck struct {
	Checked                        int
	Missing, WrongSize, Unreadable int
	FirstPath                      string // path of the first bad file
	Err                            error  // error of the first file that can't be checked
}

// CheckFiles checks whether the files of the newest rows are in the folder, with their size: of
// most rows at most, or of all if most is 0.
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
			if used, err := db.Exists(ctx, r, fileReferenceQuery.With(x.file)); err != nil {
				return w, err
			} else if !used {
				continue // deleted between the two checks
			}
			if w.FirstPath == "" {
				w.FirstPath = f.path(x.file)
			}
			switch {
			case err == nil:
				w.WrongSize++
			case errors.Is(err, fs.ErrNotExist):
				w.Missing++
			default: // the others may be readable
				w.Unreadable, w.Err = w.Unreadable+1, cmp.Or(w.Err, err)
			}
		}
	}
	return w, nil
}

// DirOwner returns the service and the database that own the files in a folder, as OpenDir and
// CheckOwner record them; "" if none is recorded. used says whether any service has stored files
// there.
func DirOwner(dir string) (owner, database string, used bool, err error) {
	if _, err := os.Stat(filepath.Join(dir, "new")); errors.Is(err, fs.ErrNotExist) {
		return "", "", false, nil
	} else if err != nil {
		return "", "", false, err
	}
	if owner, err = readMarkerFile(dir, ownerFile); err == nil {
		database, err = readMarkerFile(dir, databaseFile)
	}
	return owner, database, true, err
}

func readMarkerFile(dir, file string) (string, error) {
	text, err := os.ReadFile(filepath.Join(dir, file))
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return strings.TrimSpace(string(text)), err
}
