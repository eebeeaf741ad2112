// SPDX-License-Identifier: Apache-2.0

package backup

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/mailstead/mailstead/internal/blob"
	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/lease"
)

// restoreRun is the state of a restore.
type restoreRun struct {
	from         string
	service      ServiceStorage
	options      RestoreOptions
	databasePath string // copy of the database
	result       RestoreResult
	blobCount    int // files of large messages that exist and are referenced

	manifest    *manifest                  // nil: unverified
	allowedSums map[string][]blob.Checksum // permitted checksums of small files
}

func (r *restoreRun) close() {
	if r.manifest != nil {
		_ = r.manifest.close()
	}
}

// copyDatabase copies the database, and finds its manifest.
func (r *restoreRun) copyDatabase(ctx context.Context) error {
	f, info, err := blob.OpenRegular(r.from, databaseFile)
	if err != nil {
		return err
	}
	defer f.Close() //nolint:errcheck // only read
	hash := sha256.New()
	// Data appended meanwhile is not read.
	if err := writeFileFrom(r.databasePath, io.TeeReader(contextReader{ctx, io.LimitReader(f, info.Size())}, hash)); err != nil {
		return err
	}
	if r.options.Unverified {
		return nil
	}
	return r.findManifest(ctx, entry{info.Size(), blob.Checksum(hash.Sum(nil))})
}

// findManifest reads the manifest of the database, and any others: while a backup was updated,
// small files may already be those of the next one.
func (r *restoreRun) findManifest(ctx context.Context, database entry) error {
	names, err := manifestsIn(r.from)
	if err != nil {
		return err
	}
	own := manifestName(database.sum)
	if len(names) == 0 {
		return fmt.Errorf("%s has no manifest: a release before this one made it. Bring it up to date with this release's \"mailstead backup\", "+
			"or restore it without comparing its files, with --unverified", r.from)
	}
	if !slices.Contains(names, own) {
		return fmt.Errorf("%s is not the file that the manifest lists: it was changed, or the backup was not copied whole", filepath.Join(r.from, databaseFile))
	}
	r.allowedSums = map[string][]blob.Checksum{}
	for _, name := range names {
		m, err := readManifest(ctx, r.from, name, r.service.Key)
		switch {
		case name == own && err != nil:
			return err
		case ctx.Err() != nil:
			return ctx.Err()
		case err != nil:
			continue
		}
		for file, e := range m.small {
			r.allowedSums[file] = append(r.allowedSums[file], e.sum)
		}
		if name == own {
			r.manifest = m
		} else if err := m.close(); err != nil {
			return err
		}
	}
	switch given := strings.ToLower(r.options.Manifest); {
	case r.manifest.database != database:
		return fmt.Errorf("%s is not the file that the manifest lists", filepath.Join(r.from, databaseFile))
	case given != "" && given != hex.EncodeToString(r.manifest.sum[:]):
		return fmt.Errorf("%s has another sum than the one given by --manifest: this is not that backup", filepath.Join(r.from, own))
	}
	return nil
}

// copyBlobs copies the files of large messages, and prepares the database.
func (r *restoreRun) copyBlobs(ctx context.Context) (err error) {
	d, err := db.Open(ctx, db.Options{URL: "sqlite:" + r.databasePath, Exclusive: true})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.Close()) }()
	if err := d.BindSecretKey(ctx, r.service.Key.Fingerprint()); err != nil {
		return err
	}
	to, err := blob.NewDir(r.service.Blobs)
	if err != nil {
		return err
	}
	// Without "new" it would not pass for a blob directory; some copy tools omit empty directories.
	_ = os.MkdirAll(filepath.Join(r.from, blobFolder, "new"), 0o700)
	var sums blob.Checksums
	if r.manifest != nil {
		sums = blob.Checksums{Lookup: r.manifest.blobSum, KnownOnly: true}
	}
	store := &blob.Store{DB: d, Files: blob.UntrustedDir(filepath.Join(r.from, blobFolder)), Now: time.Now}
	if r.result.CopyResult, err = store.CopyFiles(ctx, to, sums); err != nil {
		return err
	}
	r.blobCount = r.result.Files + len(r.result.Mismatched)
	if err := lease.ExpireAll(ctx, d); err != nil {
		return err
	}
	return r.adaptDatabase(ctx, d)
}

// restoreSmallFiles copies the key and the certificates unless they exist.
func (r *restoreRun) restoreSmallFiles(ctx context.Context) error {
	names, err := r.smallFileNames()
	if err != nil {
		return err
	}
	for _, name := range names {
		if err := ctx.Err(); err != nil {
			return err
		}
		if name == keyFile && r.service.KeyGiven {
			continue
		}
		text, err := readSmallFile(r.from, name)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			r.result.Missing = append(r.result.Missing, name)
			continue
		case errors.Is(err, blob.ErrNotRegular), err == nil && r.manifest != nil && !slices.Contains(r.allowedSums[name], sha256.Sum256(text)):
			r.result.Mismatched = append(r.result.Mismatched, name)
			continue
		case err != nil:
			return err
		}
		if _, err := os.Lstat(filepath.Join(r.service.Data, filepath.FromSlash(name))); err == nil {
			continue
		}
		if err := writeSmallFile(r.service.Data, name, text); err != nil {
			return err
		}
	}
	return nil
}

// smallFileNames returns the small files of the backup.
func (r *restoreRun) smallFileNames() (names []string, err error) {
	if r.manifest == nil {
		names, err = certificateNames(r.from)
		if !r.service.KeyGiven {
			names = append(names, keyFile)
		}
		return names, err
	}
	return slices.Sorted(maps.Keys(r.manifest.small)), nil
}

// countExtra counts the other files in the directory. For large messages, it only compares the
// number of files.
func (r *restoreRun) countExtra(ctx context.Context) error {
	if r.manifest == nil {
		return nil
	}
	large := -r.blobCount
	err := filepath.WalkDir(r.from, func(path string, e fs.DirEntry, err error) error {
		if err = errors.Join(err, ctx.Err()); err != nil || e.IsDir() {
			return err
		}
		name, err := filepath.Rel(r.from, path)
		if err != nil {
			return err
		}
		name = filepath.ToSlash(name)
		_, listed := r.allowedSums[name]
		if _, is := parseBlobName(name); is {
			large++
			return nil
		}
		if name == databaseFile || name == infoFile || listed || strings.HasPrefix(name, manifestPrefix) || strings.HasPrefix(name, partFile) || strings.HasPrefix(name, partPrefix) {
			return nil
		}
		r.result.Extra++
		r.result.FirstExtra = name
		return nil
	})
	if large > 0 {
		r.result.Extra += large
		r.result.FirstExtra = cmp.Or(r.result.FirstExtra, "files of large messages that the database does not name")
	}
	return err
}
