// SPDX-License-Identifier: Apache-2.0

package blob

import (
	"context"
	"crypto/sha256"
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
	Wrong   []string // names of those that are no regular file, or have other contents than known
}

// Sum is the SHA-256 of a file.
type Sum = [sha256.Size]byte

// Sums are what is known of the contents of files, and who is told of them.
type Sums struct {
	// Known returns the sum that a file must have, if that is known. It is asked
	// for names that rise. Nil: nothing is known.
	Known func(name db.ID) (sum Sum, ok bool)
	// Only has no file copied whose sum is not known.
	Only bool
	// Trust takes a file that is at the destination already for one with the known
	// sum. Otherwise it is read.
	Trust bool
	// Note is told the sum of each file that is copied, or there already.
	Note func(name db.ID, size int64, sum Sum) error
}

// CopyFiles copies the files that the rows name to another place. Those that are
// there already, as long as they must be, stay, unless they have another sum.
func (s *Store) CopyFiles(ctx context.Context, to Files, sums Sums) (c Copied, err error) {
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
			fresh, err := s.copyOne(ctx, to, f.name, f.size, &sums)
			switch {
			case errors.Is(err, errLost):
				c.Missing = append(c.Missing, fileName(f.name))
				continue
			case errors.Is(err, errOther):
				c.Wrong = append(c.Wrong, fileName(f.name))
				continue
			case err != nil:
				return c, err
			case fresh:
				c.New++
			}
			c.Files++
			c.Bytes += f.size
		}
	}
}

// copyOne copies a file, unless it is at the destination already.
func (s *Store) copyOne(ctx context.Context, to Files, name db.ID, size int64, sums *Sums) (fresh bool, err error) {
	var want, sum Sum
	known := false
	if sums.Known != nil {
		want, known = sums.Known(name)
	}
	if sums.Only && !known {
		return false, errLost
	}
	there, err := isWhole(ctx, to, name, size)
	if err != nil {
		return false, err
	}
	switch {
	case there && known && sums.Trust:
		sum = want
	case there && !known && sums.Note == nil: // nobody asks for it
	case there:
		if sum, err = sumOf(ctx, to, name, size); err != nil {
			return false, err
		}
		there = !known || sum == want
	}
	if !there {
		var check *Sum
		if known {
			check = &want
		}
		if sum, err = copyFile(ctx, s.Files, to, name, size, check); err != nil {
			return false, err
		}
	}
	if sums.Note != nil {
		err = sums.Note(name, size, sum)
	}
	return !there, err
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

var (
	// errLost says that a file can't be had, as opposed to not written.
	errLost = errors.New("the file of a message is lost")
	// errOther says that a file is another than it must be.
	errOther = errors.New("the file of a message has other contents")
)

func sumOf(ctx context.Context, in Files, name db.ID, size int64) (sum Sum, err error) {
	f, err := in.Open(ctx, name)
	if err != nil {
		return sum, err
	}
	defer f.Close() //nolint:errcheck // only read
	hash := sha256.New()
	_, err = io.Copy(hash, &noting{r: io.NewSectionReader(f, 0, size), ctx: ctx})
	return Sum(hash.Sum(nil)), err
}

// copyFile copies a file, which must have the sum want unless that is nil.
func copyFile(ctx context.Context, from, to Files, name db.ID, size int64, want *Sum) (sum Sum, err error) {
	r, err := from.Open(ctx, name)
	switch {
	case Lost(err):
		return sum, errLost
	case errors.Is(err, ErrIrregular):
		return sum, errOther
	case err != nil:
		return sum, err
	}
	defer r.Close() //nolint:errcheck // only read
	w, err := to.Create(ctx, name)
	if err != nil {
		return sum, keeping(err)
	}
	defer w.Abort()
	source, hash := &noting{r: io.NewSectionReader(r, 0, size), ctx: ctx}, sha256.New()
	n, err := io.Copy(io.MultiWriter(w, hash), source)
	sum = Sum(hash.Sum(nil))
	switch {
	case Lost(source.err), err == nil && n < size && want == nil:
		return sum, errLost
	case err == nil && want != nil && sum != *want:
		return sum, errOther
	}
	if err == nil {
		err = w.Commit()
	}
	return sum, keeping(err)
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
