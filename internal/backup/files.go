// SPDX-License-Identifier: Apache-2.0

package backup

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/mailstead/mailstead/internal/blob"
	"github.com/mailstead/mailstead/internal/durable"
)

// removeDatabase deletes an SQLite file and its logs.
func removeDatabase(path string) error {
	for _, name := range []string{path, path + "-wal", path + "-shm", path + "-journal"} {
		if err := os.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// writeFile writes a file atomically; the contents are on disk when it returns.
func writeFile(path string, text []byte) error { return writeFileFrom(path, bytes.NewReader(text)) }

func writeFileFrom(path string, r io.Reader) error {
	f, err := os.CreateTemp(filepath.Dir(path), partPrefix) // mode 0600
	if err != nil {
		return err
	}
	defer os.Remove(f.Name()) //nolint:errcheck // it has got its name
	_, err = io.Copy(f, r)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	return durable.Rename(f.Name(), path)
}

// certificateNames returns the names of the certificates in a directory, with '/' between levels.
func certificateNames(dir string) (names []string, err error) {
	for _, name := range []string{caKeyFile, caFile} { // a certificate without its key would be rejected
		if _, err := os.Lstat(filepath.Join(dir, name)); err == nil {
			names = append(names, name)
		}
	}
	err = filepath.WalkDir(filepath.Join(dir, acmeFolder), func(path string, e fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil // there is none, or it was renewed meanwhile
		}
		if err != nil || !e.Type().IsRegular() {
			return err
		}
		name, err := filepath.Rel(dir, path)
		names = append(names, filepath.ToSlash(name))
		return err
	})
	return names, err
}

// readSmallFiles reads a small file of a directory that others may have written.
func readSmallFile(dir, name string) ([]byte, error) {
	f, info, err := blob.OpenRegular(dir, name)
	if err != nil {
		return nil, err
	}
	defer f.Close() //nolint:errcheck // only read
	if info.Size() > maxSmallSize {
		return nil, fmt.Errorf("%s is too large", filepath.Join(dir, name))
	}
	return io.ReadAll(io.LimitReader(f, maxSmallSize))
}

// writeSmallFile writes a small file, and creates its parent directories.
func writeSmallFile(dir, name string, text []byte) error {
	path := filepath.Join(dir, filepath.FromSlash(name))
	if err := durable.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	return writeFile(path, text)
}

// contextReader stops reading when its context ends.
type contextReader struct {
	ctx context.Context
	r   io.Reader
}

func (i contextReader) Read(p []byte) (int, error) {
	if err := i.ctx.Err(); err != nil {
		return 0, err
	}
	return i.r.Read(p)
}
