// SPDX-License-Identifier: Apache-2.0

package server

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

// dataDir is the service's data folder, locked for this process.
type dataDir struct {
	path string
	lock *os.File
	// holder is a random name for the folder. The process that has the lock
	// knows that an earlier process with this holder has ended.
	holder string
}

func openDataDir(path string) (*dataDir, error) {
	if err := durable.MkdirAll(path, 0o700); err != nil {
		return nil, fmt.Errorf("the data folder: %w", err)
	}
	lock, err := os.OpenFile(filepath.Join(path, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("the data folder: %w", err)
	}
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return nil, errors.Join(fmt.Errorf("another process uses the data folder %s; stop it, or name another folder with --data", path), lock.Close())
	}
	d := &dataDir{path: path, lock: lock}
	if d.holder, err = d.loadHolder(); err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	return d, nil
}

// loadHolder reads the holder from the lock file, or generates it. It is in the lock file so that
// nobody copies it by mistake without the folder.
func (d *dataDir) loadHolder() (string, error) {
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
	return name, errors.Join(d.lock.Sync(), durable.SyncDir(d.path))
}

func (d *dataDir) file(name string) string { return filepath.Join(d.path, name) }

// secretKey returns the key that seals secrets: the one given by the operator, or the one stored
// in the folder.
func (d *dataDir) secretKey(given string) (*secret.Key, error) {
	if given != "" {
		return secret.ParseKey(given)
	}
	return secret.LoadOrCreateKey(d.file("secret.key"))
}

func (d *dataDir) close() error { return d.lock.Close() }
