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

// referencedFilesQuery returns the file of each row that refers to one, and its required size.
var referencedFilesQuery = db.SQL(`SELECT file, size - LENGTH(bytes) FROM blob WHERE file > $1 AND file > 0 ORDER BY file LIMIT 1000`)

// CopyResult is the result of CopyFiles.
type CopyResult struct {
	Files      int
	Bytes      int64
	Added      int      // number of files that were not in the destination
	Missing    []string // names of files that are missing from the store, too short, or unreadable
	Mismatched []string // names of files that are not regular, or have another checksum
}

// Checksum is the SHA-256 of a file.
type Checksum = [sha256.Size]byte

// Checksums provides and records the checksums of copied files.
type Checksums struct {
	// Lookup returns the sum that a file must have, if known. Names increase from call to
	// call. Nil means that no sum is known.
	Lookup func(name db.ID) (sum Checksum, ok bool)
	// KnownOnly skips files without a known sum.
	KnownOnly bool
	// TrustExisting assumes that a file in the destination has the known sum. Otherwise the
	// file is read.
	TrustExisting bool
	// Record is called with the sum of each file that was copied or already existed.
	Record func(name db.ID, size int64, sum Checksum) error
}

// CopyFiles copies the files that rows refer to into another store. Files that already exist there
// with the required size stay, unless they have another sum.
func (s *Store) CopyFiles(ctx context.Context, to FileStore, sums Checksums) (c CopyResult, err error) {
	type file struct {
		name db.ID
		size int64
	}
	for last := db.ID(0); ; {
		page, err := db.All(ctx, s.DB, referencedFilesQuery.With(last), func(r db.Row) (f file, err error) {
			err = r.Scan(&f.name, &f.size)
			return f, err
		})
		if err != nil || len(page) == 0 {
			return c, err
		}
		for _, f := range page {
			if f.name == last { // several rows share the file
				continue
			}
			last = f.name
			fresh, err := s.copyUnlessPresent(ctx, to, f.name, f.size, &sums)
			switch {
			case errors.Is(err, errFileLost):
				c.Missing = append(c.Missing, fileName(f.name))
				continue
			case errors.Is(err, errFileMismatch):
				c.Mismatched = append(c.Mismatched, fileName(f.name))
				continue
			case err != nil:
				return c, err
			case fresh:
				c.Added++
			}
			c.Files++
			c.Bytes += f.size
		}
	}
}

// copyUnlessPresent copies a file, unless it already exists in the destination.
func (s *Store) copyUnlessPresent(ctx context.Context, to FileStore, name db.ID, size int64, sums *Checksums) (fresh bool, err error) {
	var want, sum Checksum
	known := false
	if sums.Lookup != nil {
		want, known = sums.Lookup(name)
	}
	if sums.KnownOnly && !known {
		return false, errFileLost
	}
	there, err := isComplete(ctx, to, name, size)
	if err != nil {
		return false, err
	}
	switch {
	case there && known && sums.TrustExisting:
		sum = want
	case there && !known && sums.Record == nil: // its sum is not needed
	case there:
		if sum, err = fileChecksum(ctx, to, name, size); err != nil {
			return false, err
		}
		there = !known || sum == want
	}
	if !there {
		var check *Checksum
		if known {
			check = &want
		}
		if sum, err = copyFile(ctx, s.Files, to, name, size, check); err != nil {
			return false, err
		}
	}
	if sums.Record != nil {
		err = sums.Record(name, size, sum)
	}
	return !there, err
}

// UnreferencedFiles lists the files that no row refers to. While a service is writing, a file's row
// may not be inserted yet (see Sweep).
func (s *Store) UnreferencedFiles(ctx context.Context) (list []db.ID, err error) {
	err = s.Files.Each(ctx, s.Now().Add(24*time.Hour), func(name db.ID) error {
		used, err := db.Exists(ctx, s.DB, fileReferenceQuery.With(name))
		if err == nil && !used {
			list = append(list, name)
		}
		return err
	})
	return list, err
}

func isComplete(ctx context.Context, in FileStore, name db.ID, size int64) (bool, error) {
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
	// errFileLost says that a file can't be read, as opposed to not written.
	errFileLost = errors.New("the file of a message is lost")
	// errFileMismatch says that a file has other contents than expected.
	errFileMismatch = errors.New("the file of a message has other contents")
)

func fileChecksum(ctx context.Context, in FileStore, name db.ID, size int64) (sum Checksum, err error) {
	f, err := in.Open(ctx, name)
	if err != nil {
		return sum, err
	}
	defer f.Close() //nolint:errcheck // only read
	hash := sha256.New()
	_, err = io.Copy(hash, &copySource{r: io.NewSectionReader(f, 0, size), ctx: ctx})
	return Checksum(hash.Sum(nil)), err
}

// copyFile copies a file. The file must have the sum want, unless that is nil.
func copyFile(ctx context.Context, from, to FileStore, name db.ID, size int64, want *Checksum) (sum Checksum, err error) {
	r, err := from.Open(ctx, name)
	switch {
	case IsLost(err):
		return sum, errFileLost
	case errors.Is(err, ErrNotRegular):
		return sum, errFileMismatch
	case err != nil:
		return sum, err
	}
	defer r.Close() //nolint:errcheck // only read
	w, err := to.Create(ctx, name)
	if err != nil {
		return sum, wrapStoreError(err)
	}
	defer w.Abort()
	source, hash := &copySource{r: io.NewSectionReader(r, 0, size), ctx: ctx}, sha256.New()
	n, err := io.Copy(io.MultiWriter(w, hash), source)
	sum = Checksum(hash.Sum(nil))
	switch {
	case IsLost(source.err), err == nil && n < size && want == nil:
		return sum, errFileLost
	case err == nil && want != nil && sum != *want:
		return sum, errFileMismatch
	}
	if err == nil {
		err = w.Commit()
	}
	return sum, wrapStoreError(err)
}

// copySource records the read error, and stops reading when ctx ends.
type copySource struct {
	r   io.Reader
	ctx context.Context
	err error
}

func (n *copySource) Read(p []byte) (int, error) {
	if err := n.ctx.Err(); err != nil {
		return 0, err
	}
	got, err := n.r.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		n.err = err
	}
	return got, err
}
