// SPDX-License-Identifier: Apache-2.0

package blob

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"syscall"
	"time"

	"github.com/mailstead/mailstead/internal/db"
)

// namedFiles has a row for each that names a file, with how long the file must be.
var namedFiles = db.SQL(`SELECT file, size - LENGTH(bytes) FROM blob WHERE file > $1 AND file > 0 ORDER BY file LIMIT 1000`)

// Copied is what became of the files that a database names.
type Copied struct {
	Files   int
	Bytes   int64
	New     int      // were not there yet
	Missing []string // names of those that are not in the store, or too short, or can't be read
}

// CopyFiles copies the files that the rows name to another place. Those that are
// there already, as long as they must be, stay.
func (s *Store) CopyFiles(ctx context.Context, to Files) (c Copied, err error) {
	type file struct {
		name db.ID
		size int64
	}
	for last := db.ID(0); ; {
		page, err := db.All(ctx, s.DB, namedFiles.With(last), func(r db.Row) (f file, err error) {
			err = r.Scan(&f.name, &f.size)
			return f, err
		})
		if err != nil || len(page) == 0 {
			return c, err
		}
		for _, f := range page {
			if f.name == last { // several rows share it
				continue
			}
			last = f.name
			switch whole, err := isWhole(ctx, to, f.name, f.size); {
			case err != nil:
				return c, err
			case !whole:
				err := copyFile(ctx, s.Files, to, f.name, f.size)
				if errors.Is(err, errLost) {
					c.Missing = append(c.Missing, fileName(f.name))
					continue
				}
				if err != nil {
					return c, err
				}
				c.New++
			}
			c.Files++
			c.Bytes += f.size
		}
	}
}

// Unnamed lists the files that no row names. While others write there, such a file
// may be one whose row is yet to come (see Sweep).
func (s *Store) Unnamed(ctx context.Context) (list []db.ID, err error) {
	err = s.Files.Each(ctx, s.Now().Add(24*time.Hour), func(name db.ID) error {
		err := s.DB.One(ctx, named.With(name), new(db.ID))
		if errors.Is(err, db.ErrNoRow) {
			list, err = append(list, name), nil
		}
		return err
	})
	return list, err
}

func isWhole(ctx context.Context, in Files, name db.ID, size int64) (bool, error) {
	f, err := in.Open(ctx, name)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer f.Close() //nolint:errcheck // only read
	if size == 0 {
		return true, nil
	}
	_, err = f.ReadAt(make([]byte, 1), size-1)
	if errors.Is(err, io.EOF) || errors.Is(err, syscall.EIO) {
		return false, nil
	}
	return err == nil, err
}

// errLost says that a file can't be had, as opposed to not written.
var errLost = errors.New("the file of a message is lost")

func copyFile(ctx context.Context, from, to Files, name db.ID, size int64) error {
	r, err := from.Open(ctx, name)
	if Lost(err) {
		return errLost
	}
	if err != nil {
		return err
	}
	defer r.Close() //nolint:errcheck // only read
	w, err := to.Create(ctx, name)
	if err != nil {
		return keeping(err)
	}
	defer w.Abort()
	source := &noting{r: io.NewSectionReader(r, 0, size), ctx: ctx}
	n, err := io.Copy(w, source)
	if Lost(source.err) || err == nil && n < size {
		return errLost
	}
	if err == nil {
		err = w.Commit()
	}
	return keeping(err)
}

// noting remembers why reading ended, and ends it with ctx.
type noting struct {
	r   io.Reader
	ctx context.Context
	err error
}

func (n *noting) Read(p []byte) (int, error) {
	if err := n.ctx.Err(); err != nil {
		return 0, err
	}
	got, err := n.r.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		n.err = err
	}
	return got, err
}
