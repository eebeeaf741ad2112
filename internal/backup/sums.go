// SPDX-License-Identifier: Apache-2.0

package backup

import (
	"bufio"
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

	"github.com/mailstead/mailstead/internal/blob"
	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/durable"
)

// open looks up the checksums of the existing files. Without a manifest, the backup reads them
// again.
func (t *backupRun) open(ctx context.Context) (err error) {
	names, err := manifestsIn(t.to)
	if err != nil {
		return err
	}
	for _, name := range names {
		if t.oldManifest, err = readManifest(ctx, t.to, name, t.service.Key); err == nil {
			break
		}
		if ctx.Err() != nil {
			return err
		}
	}
	t.blobLines, err = os.CreateTemp(t.to, partPrefix)
	return err
}

func (t *backupRun) close() {
	_ = t.blobLines.Close()
	_ = os.Remove(t.blobLines.Name()) // the next backup removes it
	if t.oldManifest != nil {
		_ = t.oldManifest.close()
	}
}

// newSums returns a store that also records the checksums of large messages. Call flush at the end.
func (t *backupRun) newSums() (s blob.Checksums, flush func() error, err error) {
	if err := t.blobLines.Truncate(0); err != nil {
		return s, nil, err
	}
	if _, err := t.blobLines.Seek(0, io.SeekStart); err != nil {
		return s, nil, err
	}
	w := bufio.NewWriter(t.blobLines)
	s = blob.Checksums{TrustExisting: true, Record: func(name db.ID, size int64, sum blob.Checksum) error {
		_, err := w.WriteString(formatLine(blobName(name), entry{size, sum}))
		return err
	}}
	if t.oldManifest != nil {
		s.Lookup, err = t.oldManifest.blobSum, t.oldManifest.rewind()
	}
	return s, w.Flush, err
}

// smallFile is a small file beside the database.
type smallFile struct {
	name string
	text []byte
}

// readSmallFiles reads the key and the certificates.
func (t *backupRun) readSmallFiles() (list []smallFile, err error) {
	names, err := certificateNames(t.service.Data)
	if err != nil {
		return nil, err
	}
	if !t.service.KeyGiven {
		names = append(names, keyFile)
	}
	slices.Sort(names)
	for _, name := range names {
		path := filepath.Join(t.service.Data, filepath.FromSlash(name))
		text, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) && name != keyFile { // it was renewed meanwhile
			continue
		}
		if err != nil {
			return nil, err
		}
		if len(text) > maxSmallSize {
			return nil, fmt.Errorf("%s is too large", path)
		}
		list = append(list, smallFile{name, text})
	}
	return list, nil
}

// writeManifest writes the manifest of the new backup.
func (t *backupRun) writeManifest(ctx context.Context, part string, small []smallFile) (err error) {
	database, err := hashFile(ctx, part)
	if err != nil {
		return err
	}
	t.info.DatabaseBytes, t.info.Manifest = database.size, manifestName(database.sum)
	f, err := os.CreateTemp(t.to, partPrefix)
	if err != nil {
		return err
	}
	defer os.Remove(f.Name()) //nolint:errcheck // it has got its name
	all := sha256.New()
	to := io.MultiWriter(f, all)
	m := newManifestWriter(to, t.service.Key)
	lines := manifestHeader + formatLine(databaseFile, database)
	for _, s := range small {
		lines += formatLine(s.name, entry{int64(len(s.text)), sha256.Sum256(s.text)})
	}
	if _, err = m.w.WriteString(lines); err == nil {
		_, err = t.blobLines.Seek(0, io.SeekStart)
	}
	if err == nil {
		_, err = io.Copy(m.w, contextReader{ctx, t.blobLines})
	}
	if err == nil {
		err = m.close(to)
	}
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	t.info.ManifestSum = hex.EncodeToString(all.Sum(nil))
	return durable.Rename(f.Name(), filepath.Join(t.to, t.info.Manifest))
}

// hashFile hashes a file that only this process writes.
func hashFile(ctx context.Context, path string) (e entry, err error) {
	f, err := os.Open(path)
	if err != nil {
		return e, err
	}
	defer f.Close() //nolint:errcheck // only read
	sum := sha256.New()
	e.size, err = io.Copy(sum, contextReader{ctx, f})
	e.sum = blob.Checksum(sum.Sum(nil))
	return e, err
}

// removeStale removes files that only the previous backup used.
func (t *backupRun) removeStale(ctx context.Context, small []smallFile) error {
	for _, name := range t.staleBlobs {
		if err := t.files.Delete(ctx, name); err != nil {
			return err
		}
	}
	manifests, err := manifestsIn(t.to)
	if err != nil {
		return err
	}
	stale := slices.DeleteFunc(manifests, func(name string) bool { return name == t.info.Manifest })
	there, err := certificateNames(t.to)
	if err != nil {
		return err
	}
	for _, name := range there {
		if strings.HasPrefix(name, acmeFolder+"/") && !slices.ContainsFunc(small, func(s smallFile) bool { return s.name == name }) {
			stale = append(stale, name)
		}
	}
	for _, name := range stale {
		if err := os.Remove(filepath.Join(t.to, filepath.FromSlash(name))); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("removing what only the former backup had: %w", err)
		}
	}
	return nil
}
