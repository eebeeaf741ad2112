// SPDX-License-Identifier: Apache-2.0

package blob

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// ErrNotRegular says that a path is not a regular file, but a symbolic link, a folder, a device or
// a pipe.
var ErrNotRegular = errors.New("it is no regular file")

// OpenRegular opens a file below a folder that others may have written to. name, with '/' as
// separator, may also come from others. It returns ErrNotRegular instead of following a symbolic
// link below the folder, opening a device, or blocking.
func OpenRegular(dir, name string) (*os.File, fs.FileInfo, error) {
	bad := func(err error) error { return &fs.PathError{Op: "open", Path: filepath.Join(dir, name), Err: err} }
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, nil, err
	}
	defer root.Close() //nolint:errcheck // only read
	for i, c := range name {
		if c != '/' {
			continue
		}
		info, err := root.Lstat(name[:i])
		if err == nil && !info.IsDir() {
			err = ErrNotRegular
		}
		if err != nil {
			return nil, nil, bad(pathErrorCause(err))
		}
	}
	info, err := root.Lstat(name)
	if err == nil && !info.Mode().IsRegular() {
		err = ErrNotRegular
	}
	if err != nil {
		return nil, nil, bad(pathErrorCause(err))
	}
	f, err := root.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, nil, bad(pathErrorCause(err))
	}
	now, err := f.Stat()
	if err == nil && !(now.Mode().IsRegular() && os.SameFile(info, now)) { // it was replaced meanwhile
		err = ErrNotRegular
	}
	if err != nil {
		return nil, nil, errors.Join(bad(pathErrorCause(err)), f.Close())
	}
	return f, now, nil
}

// pathErrorCause returns the cause of an error without the path.
func pathErrorCause(err error) error {
	if pe := (*fs.PathError)(nil); errors.As(err, &pe) {
		return pe.Err
	}
	return err
}
