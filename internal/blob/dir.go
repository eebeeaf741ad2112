// SPDX-License-Identifier: Apache-2.0

package blob

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/durable"
)

// Dir stores files in a folder of the local disk: DIR/ab/NAME, where NAME is the id in hexadecimal
// and ab its last two digits. Incomplete files are in DIR/new.
type Dir struct {
	dir       string
	database  string // instance name of the owning database; "" for any, see CheckOwner
	untrusted bool   // others may have written to it: no link in it is followed
}

// NewDir opens the folder, and creates it if it does not exist.
func NewDir(dir string) (*Dir, error) {
	if err := makeDirs(dir); err != nil {
		return nil, fmt.Errorf("making the blob folder: %w", err)
	}
	return &Dir{dir: dir}, nil
}

// ExistingDir returns a folder for reading: it creates nothing in it.
func ExistingDir(dir string) *Dir { return &Dir{dir: dir} }

// UntrustedDir is ExistingDir for a folder that others may have written to, see OpenRegular.
func UntrustedDir(dir string) *Dir { return &Dir{dir: dir, untrusted: true} }

// makeDirs creates all folders in advance, so that no file is lost with a folder whose own name was
// not on disk yet.
func makeDirs(dir string) error {
	if err := durable.MkdirAll(filepath.Join(dir, "new"), 0o700); err != nil {
		return err
	}
	for i := range 256 {
		if err := os.Mkdir(filepath.Join(dir, fmt.Sprintf("%02x", i)), 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
	}
	return durable.SyncDir(dir)
}

func (f *Dir) path(name db.ID) string {
	hex := fileName(name)
	return filepath.Join(f.dir, hex[14:], hex)
}

func fileName(name db.ID) string { return fmt.Sprintf("%016x", int64(name)) }

// Create begins a file under a temporary name.
func (f *Dir) Create(_ context.Context, name db.ID) (FileWriter, error) {
	tmp, err := os.CreateTemp(filepath.Join(f.dir, "new"), "")
	if err != nil {
		return nil, err
	}
	return &dirFile{File: tmp, finalPath: f.path(name)}, nil
}

type dirFile struct {
	*os.File
	finalPath string
	done      bool
}

// Commit syncs the file, gives it its final name and syncs that too.
func (w *dirFile) Commit() error {
	if err := w.Sync(); err != nil {
		return err
	}
	if err := w.Close(); err != nil {
		return err
	}
	if err := os.Rename(w.Name(), w.finalPath); err != nil {
		return err
	}
	w.done = true
	return durable.SyncDir(filepath.Dir(w.finalPath))
}

func (w *dirFile) Abort() {
	if w.done {
		return
	}
	// If the removal fails, the sweep removes the file a day later.
	_ = w.Close()
	_ = os.Remove(w.Name())
}

// Open opens a file for reading. While the folder itself is missing (not mounted), no file counts
// as lost.
func (f *Dir) Open(_ context.Context, name db.ID) (FileReader, error) {
	file, err := f.open(name)
	if errors.Is(err, fs.ErrNotExist) {
		if _, away := os.Stat(filepath.Join(f.dir, "new")); away != nil {
			return nil, errors.New("the folder of the large messages is not there: " + away.Error())
		}
	}
	if err != nil {
		return nil, err
	}
	return file, nil
}

func (f *Dir) open(name db.ID) (*os.File, error) {
	if f.untrusted {
		hex := fileName(name)
		file, _, err := OpenRegular(f.dir, hex[14:]+"/"+hex)
		return file, err
	}
	file, err := os.OpenFile(f.path(name), os.O_RDONLY|syscall.O_NONBLOCK, 0) // opening a pipe must not block
	if err != nil {
		return nil, err
	}
	info, err := file.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = &fs.PathError{Op: "open", Path: f.path(name), Err: ErrNotRegular}
	}
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return file, nil
}

// Delete deletes a file.
func (f *Dir) Delete(_ context.Context, name db.ID) error {
	err := os.Remove(f.path(name))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// Each calls do for the files last written before a time. It deletes temporary files of that age,
// which a crash left.
func (f *Dir) Each(ctx context.Context, before time.Time, do func(db.ID) error) error {
	return filepath.WalkDir(f.dir, func(path string, e fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if e != nil && e.IsDir() && path != f.dir && e.Name() != "new" && len(e.Name()) != 2 {
			return fs.SkipDir // not the store's, for example lost+found
		}
		if err != nil || e.IsDir() {
			return errors.Join(err, ctx.Err())
		}
		info, err := e.Info()
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil || !info.ModTime().Before(before) {
			return err
		}
		if filepath.Dir(path) == filepath.Join(f.dir, "new") {
			if err := os.Remove(path); !errors.Is(err, fs.ErrNotExist) { // another node may have deleted it
				return err
			}
			return nil
		}
		id, err := strconv.ParseInt(e.Name(), 16, 64)
		if err != nil || path != f.path(db.ID(id)) {
			return nil //nolint:nilerr // not ours
		}
		return do(db.ID(id))
	})
}
