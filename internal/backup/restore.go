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

	"github.com/mailstead/mailstead/internal/blob"
	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/durable"
	"github.com/mailstead/mailstead/internal/secret"
)

// restoreFolder is where the database is made ready, in the data folder.
const restoreFolder = ".restore"

// RestoreOptions say how a backup is restored.
type RestoreOptions struct {
	// Unverified takes a backup without a manifest, as releases before the first
	// manifest made it: files are not compared with what they were.
	Unverified bool
	// Manifest is the SHA-256 that the manifest must have; "" for any that is made
	// with the service's key.
	Manifest string
}

// RestoreResult is what became of a backup.
type RestoreResult struct {
	// Copied also has the names of small files, such as certificates, among those
	// that are missing or wrong.
	blob.CopyResult
	// Extra counts files in the folder that are not of the backup, FirstExtra is one.
	Extra      int
	FirstExtra string
}

// Restore makes a service of a backup, on either engine, whichever the backup is
// of. Others may have written the backup's folder: Restore reads nothing but regular
// files, compares each with the manifest, and the database's schema with that of its
// version. The caller has locked the data folder. What is there already is never
// written over, but for what an interrupted Restore left. ready, given the new
// database before anybody uses it, changes in it what must not be as it was. The
// database gets its place at last, and whole.
func Restore(ctx context.Context, from string, s Service, o RestoreOptions, ready func(ctx context.Context, d *db.DB) error) (done RestoreResult, err error) {
	if err := CheckFolder(from); err != nil {
		return done, err
	}
	unlock, _, err := lockFolder(from)
	if err != nil {
		return done, err
	}
	defer unlock()
	if err := checkTarget(ctx, from, &s); err != nil {
		return done, err
	}
	work := filepath.Join(s.Data, restoreFolder)
	if err := os.RemoveAll(work); err != nil {
		return done, err
	}
	defer os.RemoveAll(work) //nolint:errcheck // the next one does it
	if err := os.Mkdir(work, 0o700); err != nil {
		return done, err
	}
	r := restoreRun{from: from, service: s, options: o, databasePath: filepath.Join(work, databaseFile)}
	defer r.close()
	if err := r.copyDatabase(ctx); err != nil {
		return done, err
	}
	if err := db.CheckSnapshot(ctx, r.databasePath); err != nil {
		return done, fmt.Errorf("%s: %w", filepath.Join(from, databaseFile), err)
	}
	if err := r.copyBlobs(ctx, ready); err != nil {
		return r.result, err
	}
	if err := r.restoreSmall(ctx); err != nil {
		return r.result, err
	}
	if err := r.countExtra(ctx); err != nil {
		return r.result, err
	}
	for _, stale := range []string{"search.db", "search.db-wal", "search.db-shm"} { // of another database
		if err := os.Remove(filepath.Join(s.Data, stale)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return r.result, err
		}
	}
	if target, isFile := strings.CutPrefix(s.Database, "sqlite:"); isFile {
		return r.result, durable.Rename(r.databasePath, target)
	}
	return r.result, db.CopyToPostgres(ctx, r.databasePath, s.Database)
}

// checkTarget looks whether the service may be restored where it is to be, and
// completes its key.
func checkTarget(ctx context.Context, from string, s *Service) error {
	if info, err := os.Lstat(filepath.Join(from, blobFolder)); err == nil && !info.IsDir() {
		return fmt.Errorf("%s: %w, and no folder", filepath.Join(from, blobFolder), blob.ErrNotRegular)
	}
	if err := checkBlobFolder(from, s.Blobs); err != nil {
		return err
	}
	if err := checkUnused(ctx, *s); err != nil {
		return err
	}
	if err := loadKey(from, s); err != nil {
		return err
	}
	return checkBlobOwner(*s)
}

// CheckFolder returns an error unless a folder holds a backup.
func CheckFolder(folder string) error {
	info, err := os.Lstat(filepath.Join(folder, databaseFile))
	if err == nil && !info.Mode().IsRegular() {
		err = blob.ErrNotRegular
	}
	if err != nil {
		return fmt.Errorf("%s is no backup: %s: %w", folder, databaseFile, withoutPath(err))
	}
	return nil
}

// checkUnused refuses the place of a service that has a database there.
func checkUnused(ctx context.Context, s Service) error {
	path, isFile := strings.CutPrefix(s.Database, "sqlite:")
	if !isFile {
		return db.CheckUnused(ctx, s.Database)
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

// loadKey reads the backup's key, unless one is given. It goes into the data folder
// once it is known to be the database's.
func loadKey(from string, s *Service) (err error) {
	if s.KeyGiven {
		return nil
	}
	saved, here := filepath.Join(from, keyFile), filepath.Join(s.Data, keyFile)
	text, err := readSmall(from, keyFile) // whatever its mode: not every file system has them
	if errors.Is(err, fs.ErrNotExist) {
		err = errors.New("the secret key is not in the backup; give the service's by --secret-key")
	}
	if err != nil {
		return err
	}
	if s.Key, err = secret.ParseKey(string(text)); err != nil {
		return fmt.Errorf("%s: %w", saved, err)
	}
	if _, err := os.Stat(here); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	now, err := secret.LoadOrCreateKey(here)
	if err == nil && now.Fingerprint() != s.Key.Fingerprint() {
		err = fmt.Errorf("%s is another key than the backup's; move it away", here)
	}
	return err
}

// checkBlobOwner refuses a folder in which a service with another key keeps its files: that
// one would delete all that are copied there.
func checkBlobOwner(s Service) error {
	owner, _, _, err := blob.DirOwner(s.Blobs)
	if err == nil && owner != "" && owner != s.Key.Fingerprint() {
		err = fmt.Errorf("%s is another service's folder of large messages, with another secret key; name another folder with --blobs", s.Blobs)
	}
	return err
}

// withoutPath is an error without the path.
func withoutPath(err error) error {
	if pe := (*fs.PathError)(nil); errors.As(err, &pe) {
		return pe.Err
	}
	return err
}
