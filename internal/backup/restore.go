// SPDX-License-Identifier: Apache-2.0

package backup

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/mailstead/mailstead/internal/blob"
	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/secret"
)

// workFolder is where the database is made ready, in the data folder.
const workFolder = ".restore"

// Restore makes a service of a backup, on either engine, whichever the backup is
// of. The caller has locked the data folder. What is there already is never
// written over, but for what an interrupted Restore left. ready, given the new
// database before anybody uses it, changes in it what must not be as it was. The
// database gets its place at last, and whole.
func Restore(ctx context.Context, from string, s Service, ready func(ctx context.Context, d *db.DB) error) (c blob.Copied, err error) {
	if err := Is(from); err != nil {
		return c, err
	}
	unlock, _, err := lock(from)
	if err != nil {
		return c, err
	}
	defer unlock()
	if err := apart(from, s.Blobs); err != nil {
		return c, err
	}
	if err := free(ctx, s); err != nil {
		return c, err
	}
	if err := savedKey(from, &s); err != nil {
		return c, err
	}
	if err := others(s); err != nil {
		return c, err
	}
	work := filepath.Join(s.Data, workFolder)
	if err := os.RemoveAll(work); err != nil {
		return c, err
	}
	defer os.RemoveAll(work) //nolint:errcheck // the next one does it
	if err := os.Mkdir(work, 0o700); err != nil {
		return c, err
	}
	file := filepath.Join(work, databaseFile)
	if err := copyFile(filepath.Join(from, databaseFile), file); err != nil {
		return c, err
	}
	if c, err = prepare(ctx, from, file, s, ready); err != nil {
		return c, err
	}
	if !s.KeyGiven {
		if err := copyIf(filepath.Join(from, keyFile), filepath.Join(s.Data, keyFile), false); err != nil {
			return c, err
		}
	}
	if err := copyCertificates(from, s.Data, false); err != nil {
		return c, err
	}
	for _, stale := range []string{"search.db", "search.db-wal", "search.db-shm"} { // of another database
		if err := os.Remove(filepath.Join(s.Data, stale)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return c, err
		}
	}
	if target, isFile := strings.CutPrefix(s.Database, "sqlite:"); isFile {
		return c, rename(file, target)
	}
	return c, db.Load(ctx, file, s.Database)
}

// Is returns an error unless a folder holds a backup.
func Is(folder string) error {
	if _, err := os.Stat(filepath.Join(folder, databaseFile)); err != nil {
		return fmt.Errorf("%s is no backup: %w", folder, bare(err))
	}
	return nil
}

// free refuses the place of a service that has a database there.
func free(ctx context.Context, s Service) error {
	path, isFile := strings.CutPrefix(s.Database, "sqlite:")
	if !isFile {
		return db.Unused(ctx, s.Database)
	}
	for _, name := range []string{path, path + "-wal"} { // the log would be taken for the new one's
		if _, err := os.Lstat(name); err == nil {
			return fmt.Errorf("%s is there already; move it away, or name another folder with --data", name)
		} else if !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// savedKey reads the backup's key, unless one is given. It goes into the data folder
// once it is known to be the database's.
func savedKey(from string, s *Service) (err error) {
	if s.KeyGiven {
		return nil
	}
	saved, here := filepath.Join(from, keyFile), filepath.Join(s.Data, keyFile)
	text, err := os.ReadFile(saved) // whatever its mode: not every file system has them
	if errors.Is(err, fs.ErrNotExist) {
		err = errors.New("the secret key is not in the backup; give the service's by --secret-key")
	}
	if err != nil {
		return err
	}
	if s.Key, err = secret.Parse(string(text)); err != nil {
		return fmt.Errorf("%s: %w", saved, err)
	}
	if _, err := os.Stat(here); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	now, err := secret.Load(here)
	if err == nil && now.Fingerprint() != s.Key.Fingerprint() {
		err = fmt.Errorf("%s is another key than the backup's; move it away", here)
	}
	return err
}

// others refuses a folder in which a service with another key keeps its files: that
// one would delete all that are copied there.
func others(s Service) error {
	owner, _, _, err := blob.Owner(s.Blobs)
	if err == nil && owner != "" && owner != s.Key.Fingerprint() {
		err = fmt.Errorf("%s is another service's folder of large messages, with another secret key; name another folder with --blobs", s.Blobs)
	}
	return err
}

// prepare copies the files of large messages, and makes the database ready.
func prepare(ctx context.Context, from, file string, s Service, ready func(context.Context, *db.DB) error) (c blob.Copied, err error) {
	d, err := db.Open(ctx, db.Options{URL: "sqlite:" + file, Copy: true})
	if err != nil {
		return c, err
	}
	defer func() { err = errors.Join(err, d.Close()) }()
	if err := d.SameKey(ctx, s.Key.Fingerprint()); err != nil {
		return c, err
	}
	to, err := blob.NewFolder(s.Blobs)
	if err != nil {
		return c, err
	}
	// Without this it would not pass for a folder of files; some ways of copying
	// leave out folders that are empty.
	_ = os.MkdirAll(filepath.Join(from, blobFolder, "new"), 0o700)
	store := &blob.Store{DB: d, Files: blob.ExistingFolder(filepath.Join(from, blobFolder)), Now: time.Now}
	if c, err = store.CopyFiles(ctx, to); err != nil {
		return c, err
	}
	if err := d.Retire(ctx); err != nil {
		return c, err
	}
	return c, ready(ctx, d)
}

// bare is an error without the path.
func bare(err error) error {
	if pe := (*fs.PathError)(nil); errors.As(err, &pe) {
		return pe.Err
	}
	return err
}
