// SPDX-License-Identifier: Apache-2.0

// Package durable creates folders and files that survive a power failure. When a function returns,
// both the contents and the name in its folder are on disk: a file system may forget a name until
// its folder is synced.
package durable

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// MkdirAll creates a folder and its missing parents. It also syncs the name of the first one that
// exists, as an earlier process may have ended before doing so.
func MkdirAll(path string, mode fs.FileMode) error {
	path = filepath.Clean(path)
	parent := filepath.Dir(path)
	err := os.Mkdir(path, mode)
	if errors.Is(err, fs.ErrNotExist) && parent != path {
		if err := MkdirAll(parent, mode); err != nil {
			return err
		}
		err = os.Mkdir(path, mode)
	}
	if err == nil {
		return SyncDir(parent)
	}
	info, statErr := os.Stat(path)
	if statErr != nil {
		return err
	}
	if !info.IsDir() {
		return &fs.PathError{Op: "mkdir", Path: path, Err: syscall.ENOTDIR}
	}
	_ = SyncDir(parent) // it may be another user's, or read-only
	return nil
}

// WriteFile replaces a file atomically: a reader sees the old contents or the new ones, even after
// a power failure.
func WriteFile(path string, text []byte, mode fs.FileMode) error {
	temporary := fmt.Sprintf("%s.%s", path, rand.Text()[:8])
	err := createFile(temporary, text, mode)
	if err == nil {
		err = Rename(temporary, path)
	}
	if err != nil {
		_ = os.Remove(temporary)
	}
	return err
}

// createFile creates a file with the given mode, regardless of the umask.
func createFile(path string, text []byte, mode fs.FileMode) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	return errors.Join(err, f.Chmod(mode), f.Sync(), f.Close())
}

// Rename gives a file or folder its final name. Its contents must be synced already.
func Rename(from, to string) error {
	if err := os.Rename(from, to); err != nil {
		return err
	}
	return SyncDir(filepath.Dir(to))
}

// SyncDir makes the names in a folder durable.
func SyncDir(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}
