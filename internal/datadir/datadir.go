// SPDX-License-Identifier: Apache-2.0

// Package datadir opens the service's data folder: it locks the folder, identifies it, and finds the
// secret key.
package datadir

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/mailstead/mailstead/internal/durable"
	"github.com/mailstead/mailstead/internal/secret"
)

// The names of files that several packages use.
const (
	LockFile     = "lock" // holds Dir.Holder
	KeyFile      = "secret.key"
	DatabaseFile = "mailstead.db"
	SearchFile   = "search.db"
)

// Dir is a data folder, locked for this process.
type Dir struct {
	Path string
	// Holder is a random name for the folder. The process that has the lock
	// knows that an earlier process with this holder has ended.
	Holder string
	lock   *os.File
}

// Open creates a data folder if there is none, and locks it. The caller must call Close.
func Open(path string) (*Dir, error) {
	if err := durable.MkdirAll(path, 0o700); err != nil {
		return nil, fmt.Errorf("the data folder: %w", err)
	}
	lock, err := os.OpenFile(filepath.Join(path, LockFile), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("the data folder: %w", err)
	}
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return nil, errors.Join(fmt.Errorf("another process uses the data folder %s; stop it, or name another folder with --data", path), lock.Close())
	}
	d := &Dir{Path: path, lock: lock}
	if d.Holder, err = d.loadHolder(); err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	return d, nil
}

// loadHolder reads the holder from the lock file, or generates it. It is in the lock file so that
// nobody copies it by mistake without the folder.
func (d *Dir) loadHolder() (string, error) {
	text, err := os.ReadFile(d.lock.Name())
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", err
	}
	if name := strings.TrimSpace(string(text)); name != "" {
		return name, nil
	}
	name := rand.Text()
	if _, err := d.lock.WriteString(name + "\n"); err != nil {
		return "", err
	}
	return name, errors.Join(d.lock.Sync(), durable.SyncDir(d.Path))
}

// File returns the path of a file in the folder.
func (d *Dir) File(name string) string { return filepath.Join(d.Path, name) }

// SecretKey returns the key that seals secrets: the one given by the operator, or the one stored
// in the folder.
func (d *Dir) SecretKey(given string) (*secret.Key, error) {
	if given != "" {
		return secret.ParseKey(given)
	}
	return secret.LoadOrCreateKey(d.File(KeyFile))
}

// ReadKey is SecretKey without a lock, and without creating a key.
func ReadKey(path, given string) (*secret.Key, error) {
	if given != "" {
		return secret.ParseKey(given)
	}
	return secret.ReadKey(filepath.Join(path, KeyFile))
}

// Close unlocks the folder.
func (d *Dir) Close() error { return d.lock.Close() }
