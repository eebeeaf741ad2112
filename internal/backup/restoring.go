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
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/mailstead/mailstead/internal/blob"
	"github.com/mailstead/mailstead/internal/db"
)

// restoring is a backup that is being restored.
type restoring struct {
	from    string
	service Service
	options Options
	file    string // the copy of the database
	done    Restored
	large   int // files of large messages that are there and named

	manifest *manifest             // nil: unverified
	allowed  map[string][]blob.Sum // what a small file may be
}

func (r *restoring) close() {
	if r.manifest != nil {
		_ = r.manifest.close()
	}
}

// database copies the database, and finds the manifest that lists it.
func (r *restoring) database(ctx context.Context) error {
	f, info, err := blob.OpenRegular(r.from, databaseFile)
	if err != nil {
		return err
	}
	defer f.Close() //nolint:errcheck // only read
	hash := sha256.New()
	// What is written behind its end meanwhile is not read.
	if err := writeFrom(r.file, io.TeeReader(interruptible{ctx, io.LimitReader(f, info.Size())}, hash)); err != nil {
		return err
	}
	if r.options.Unverified {
		return nil
	}
	return r.find(ctx, entry{info.Size(), blob.Sum(hash.Sum(nil))})
}

// find reads the manifest of the database, and those of others that are there: while
// a backup was brought up to date, small files may have become those of the next one.
func (r *restoring) find(ctx context.Context, database entry) error {
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
	r.allowed = map[string][]blob.Sum{}
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
			r.allowed[file] = append(r.allowed[file], e.sum)
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

// prepare copies the files of large messages, and makes the database ready.
func (r *restoring) prepare(ctx context.Context, ready func(context.Context, *db.DB) error) (err error) {
	d, err := db.Open(ctx, db.Options{URL: "sqlite:" + r.file, Copy: true})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.Close()) }()
	if err := d.SameKey(ctx, r.service.Key.Fingerprint()); err != nil {
		return err
	}
	to, err := blob.NewFolder(r.service.Blobs)
	if err != nil {
		return err
	}
	// Without this it would not pass for a folder of files; some ways of copying
	// leave out folders that are empty.
	_ = os.MkdirAll(filepath.Join(r.from, blobFolder, "new"), 0o700)
	var sums blob.Sums
	if r.manifest != nil {
		sums = blob.Sums{Known: r.manifest.known, Only: true}
	}
	store := &blob.Store{DB: d, Files: blob.ForeignFolder(filepath.Join(r.from, blobFolder)), Now: time.Now}
	if r.done.Copied, err = store.CopyFiles(ctx, to, sums); err != nil {
		return err
	}
	r.large = r.done.Files + len(r.done.Wrong)
	if err := d.Retire(ctx); err != nil {
		return err
	}
	return ready(ctx, d)
}

// small copies the key and the certificates to where there are none.
func (r *restoring) small(ctx context.Context) error {
	names, err := r.smallNames()
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
		text, err := readSmall(r.from, name)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			r.done.Missing = append(r.done.Missing, name)
			continue
		case errors.Is(err, blob.ErrIrregular), err == nil && r.manifest != nil && !slices.Contains(r.allowed[name], sha256.Sum256(text)):
			r.done.Wrong = append(r.done.Wrong, name)
			continue
		case err != nil:
			return err
		}
		if _, err := os.Lstat(filepath.Join(r.service.Data, filepath.FromSlash(name))); err == nil {
			continue
		}
		if err := writeSmall(r.service.Data, name, text); err != nil {
			return err
		}
	}
	return nil
}

// smallNames lists the small files that the backup has.
func (r *restoring) smallNames() (names []string, err error) {
	if r.manifest == nil {
		names, err = certificates(r.from)
		if !r.service.KeyGiven {
			names = append(names, keyFile)
		}
		return names, err
	}
	for name := range r.manifest.small {
		names = append(names, name)
	}
	slices.Sort(names)
	return names, nil
}

// extra counts what else is in the folder. Of large messages it knows only how many
// there are.
func (r *restoring) extra(ctx context.Context) error {
	if r.manifest == nil {
		return nil
	}
	large := -r.large
	err := filepath.WalkDir(r.from, func(path string, e fs.DirEntry, err error) error {
		if err = errors.Join(err, ctx.Err()); err != nil || e.IsDir() {
			return err
		}
		name, err := filepath.Rel(r.from, path)
		if err != nil {
			return err
		}
		name = filepath.ToSlash(name)
		_, listed := r.allowed[name]
		if _, is := blobOf(name); is {
			large++
			return nil
		}
		if name == databaseFile || name == aboutFile || listed || strings.HasPrefix(name, manifestPrefix) || strings.HasPrefix(name, partFile) || strings.HasPrefix(name, partPrefix) {
			return nil
		}
		r.done.Extra++
		r.done.FirstExtra = name
		return nil
	})
	if large > 0 {
		r.done.Extra += large
		r.done.FirstExtra = cmp.Or(r.done.FirstExtra, "files of large messages that the database does not name")
	}
	return err
}
