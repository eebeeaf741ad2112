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

	"github.com/mailstead/mailstead/internal/account"
	"github.com/mailstead/mailstead/internal/blob"
	"github.com/mailstead/mailstead/internal/datadir"
	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/durable"
	"github.com/mailstead/mailstead/internal/secret"
)

// restoreFolder is the directory, inside the data directory, where the database is prepared.
const restoreFolder = ".restore"

// RestoreOptions are the options of Restore.
type RestoreOptions struct {
	// Moved says that the service has not run since the backup. Otherwise every folder gets a
	// new UIDVALIDITY, so that mail clients reload it, as UIDs assigned since will be assigned
	// again. Events continue at positions that were not assigned since. And the database gets a
	// new instance name, so that it deletes no file of the former one's folder.
	Moved bool
	// Hold holds the queued deliveries, which may have been sent since the backup, until an
	// operator releases them.
	Hold bool
	// RevokeKeys deletes all API keys and app passwords. Otherwise those of the backup work
	// again, including those that were deleted since.
	RevokeKeys bool
	// Unverified accepts a backup without a manifest, as made by releases before manifests: files
	// are not verified.
	Unverified bool
	// Manifest is the required SHA-256 of the manifest; "" accepts any with a valid HMAC.
	Manifest string
}

// RestoreResult is the result of a restore.
type RestoreResult struct {
	// Missing and wrong files also include small files, such as certificates.
	blob.CopyResult
	// Extra is the number of files in the directory that are not part of the backup; FirstExtra is
	// one of them.
	Extra      int
	FirstExtra string

	Sessions, Links    int64                 // number revoked
	Keys, AppPasswords int64                 // number revoked or, without RevokeKeys, number that work
	KeyNames           []account.KeyIdentity // keys that work, at most maxListedKeys
}

// Restore creates a service from a backup, on either engine, whichever the backup is of. It doesn't
// trust the backup's directory: it reads only regular files, verifies each against the manifest,
// and compares the database's schema with that of its version. It overwrites nothing except what an
// interrupted Restore left. The complete database gets its final place last.
func Restore(ctx context.Context, from string, s ServiceStorage, o RestoreOptions) (done RestoreResult, err error) {
	if err := checkHasBackup(from); err != nil { // before a data folder is created
		return done, err
	}
	// A lock file in the backup would make it look like a data folder, and the next backup
	// would fail.
	there, _ := os.Stat(s.Data)
	if saved, err := os.Stat(from); err == nil && os.SameFile(there, saved) {
		return done, fmt.Errorf("%s is the backup itself; name another folder with --data", s.Data)
	}
	data, err := datadir.Open(s.Data)
	if err != nil {
		return done, err
	}
	defer data.Close() //nolint:errcheck // it only unlocks
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
	if err := r.copyBlobs(ctx); err != nil {
		return r.result, err
	}
	if err := r.restoreSmallFiles(ctx); err != nil {
		return r.result, err
	}
	if err := r.countExtra(ctx); err != nil {
		return r.result, err
	}
	for _, stale := range []string{datadir.SearchFile, datadir.SearchFile + "-wal", datadir.SearchFile + "-shm"} { // belongs to another database
		if err := os.Remove(filepath.Join(s.Data, stale)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return r.result, err
		}
	}
	if target, isFile := strings.CutPrefix(s.Database, "sqlite:"); isFile {
		return r.result, durable.Rename(r.databasePath, target)
	}
	return r.result, db.CopyToPostgres(ctx, r.databasePath, s.Database)
}

// checkTarget checks whether the service may be restored to its target, and completes its key.
func checkTarget(ctx context.Context, from string, s *ServiceStorage) error {
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

// checkHasBackup returns an error unless a directory has a backup.
func checkHasBackup(folder string) error {
	info, err := os.Lstat(filepath.Join(folder, databaseFile))
	if err == nil && !info.Mode().IsRegular() {
		err = blob.ErrNotRegular
	}
	if err != nil {
		return fmt.Errorf("%s is no backup: %s: %w", folder, databaseFile, withoutPath(err))
	}
	return nil
}

// checkUnused returns an error if the target already has a database.
func checkUnused(ctx context.Context, s ServiceStorage) error {
	path, isFile := strings.CutPrefix(s.Database, "sqlite:")
	if !isFile {
		return db.CheckUnused(ctx, s.Database)
	}
	for _, name := range []string{path, path + "-wal"} { // it would be taken for the new database's log
		if _, err := os.Lstat(name); err == nil {
			return fmt.Errorf("%s is there already; move it away, or name another folder with --data", name)
		} else if !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// loadKey reads the backup's key, unless one is given. It is written to the data directory once it
// is known to match the database.
func loadKey(from string, s *ServiceStorage) (err error) {
	if s.KeyGiven {
		return nil
	}
	saved, here := filepath.Join(from, keyFile), filepath.Join(s.Data, keyFile)
	text, err := readSmallFile(from, keyFile) // with any mode: not every file system has modes
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

// checkBlobOwner returns an error if a service with another key stores its files in the directory:
// that service would delete all copied files.
func checkBlobOwner(s ServiceStorage) error {
	owner, _, _, err := blob.DirOwner(s.Blobs)
	if err == nil && owner != "" && owner != s.Key.Fingerprint() {
		err = fmt.Errorf("%s is another service's folder of large messages, with another secret key; name another folder with --blobs", s.Blobs)
	}
	return err
}

// withoutPath returns an error without its path.
func withoutPath(err error) error {
	if pe := (*fs.PathError)(nil); errors.As(err, &pe) {
		return pe.Err
	}
	return err
}
