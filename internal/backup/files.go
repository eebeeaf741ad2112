// SPDX-License-Identifier: Apache-2.0

package backup

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// remove deletes a file of SQLite with its logs.
func remove(path string) error {
	for _, name := range []string{path, path + "-wal", path + "-shm", path + "-journal"} {
		if err := os.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// writeFile gives a file its contents at once, on disk when it returns.
func writeFile(path string, text []byte) error { return writeFrom(path, bytes.NewReader(text)) }

func writeFrom(path string, r io.Reader) error {
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
	return rename(f.Name(), path)
}

// rename is on disk when it returns.
func rename(from, to string) error {
	if err := os.Rename(from, to); err != nil {
		return err
	}
	return syncFolder(filepath.Dir(to))
}

func syncFolder(path string) error {
	dir, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}

func copyFile(from, to string) error {
	f, err := os.Open(from)
	if err != nil {
		return err
	}
	defer f.Close() //nolint:errcheck // only read
	return writeFrom(to, f)
}

// copyCertificates copies what certificates there are; over those at their new
// place if again is set.
func copyCertificates(from, to string, again bool) error {
	for _, name := range []string{authorityKey, authority} { // without its key it would be refused
		err := copyIf(filepath.Join(from, name), filepath.Join(to, name), again)
		if err != nil {
			return err
		}
	}
	return filepath.WalkDir(filepath.Join(from, acmeFolder), func(path string, e fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil // there are none, or it was renewed meanwhile
		}
		if err != nil {
			return err
		}
		name, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		switch target := filepath.Join(to, name); {
		case e.IsDir():
			return os.MkdirAll(target, 0o700)
		case e.Type().IsRegular():
			return copyIf(path, target, again)
		}
		return nil
	})
}

// copyIf copies a file, if there is one, over another only if again is set.
func copyIf(from, to string, again bool) error {
	if _, err := os.Lstat(to); err == nil && !again {
		return nil
	}
	err := copyFile(from, to)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
