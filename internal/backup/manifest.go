// SPDX-License-Identifier: Apache-2.0

package backup

import (
	"bufio"
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/mailstead/mailstead/internal/blob"
	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/secret"
)

// A manifest lists the files of a backup, one per line with SHA-256, size and name: the database
// first, then the small files by name, then the files of large messages by number. Its last line is
// an HMAC of the preceding lines, with a key derived from the service's secret key. The manifest's
// name contains the database's checksum. So a backup that is interrupted while it is updated always
// has the manifest of its current database.
const (
	manifestPrefix  = "manifest-"
	manifestHeader  = "mailstead-backup 1\n"
	manifestMAC     = "hmac-sha256 "
	manifestPurpose = "backup manifest" // derives the HMAC key from the secret key

	maxManifestLine = 4 << 10
	maxSmall        = 10_000  // number of files beside the database and the large messages
	maxSmallSize    = 1 << 20 // bytes of each
)

func manifestName(database blob.Checksum) string {
	return manifestPrefix + hex.EncodeToString(database[:16])
}

// entry is the expected checksum and size of a file.
type entry struct {
	size int64
	sum  blob.Checksum
}

func formatLine(name string, e entry) string { return fmt.Sprintf("%x %d %s\n", e.sum, e.size, name) }

// parseLine parses a line; it doesn't validate the name.
func parseLine(text string) (name string, e entry, err error) {
	sum, rest, _ := strings.Cut(strings.TrimSuffix(text, "\n"), " ")
	size, name, _ := strings.Cut(rest, " ")
	raw, err := hex.DecodeString(sum)
	if err == nil && len(raw) != len(e.sum) {
		err = errors.New("a sum is too short")
	}
	if err == nil {
		e.size, err = strconv.ParseInt(size, 10, 64)
	}
	if err == nil && e.size < 0 {
		err = errors.New("a size is below zero")
	}
	copy(e.sum[:], raw)
	return name, e, err
}

// blobName returns the name of a large message's file.
func blobName(id db.ID) string {
	text := fmt.Sprintf("%016x", int64(id))
	return blobFolder + "/" + text[14:] + "/" + text
}

// parseBlobName is the inverse of blobName.
func parseBlobName(name string) (db.ID, bool) {
	id, err := strconv.ParseInt(path.Base(name), 16, 64)
	return db.ID(id), err == nil && id > 0 && name == blobName(db.ID(id))
}

// isSmallFile reports whether a name belongs to a small file beside the database.
func isSmallFile(name string) bool {
	return name == keyFile || name == caFile || name == caKeyFile ||
		strings.HasPrefix(name, acmeFolder+"/") && path.Clean(name) == name && filepath.IsLocal(filepath.FromSlash(name))
}

// manifestWriter writes a manifest.
type manifestWriter struct {
	w   *bufio.Writer
	mac hash.Hash
}

func newManifestWriter(to io.Writer, key *secret.Key) *manifestWriter {
	m := &manifestWriter{mac: hmac.New(sha256.New, key.Subkey(manifestPurpose))}
	m.w = bufio.NewWriter(io.MultiWriter(to, m.mac))
	return m
}

// close writes the last line, which is not part of the HMAC.
func (m *manifestWriter) close(to io.Writer) error {
	if err := m.w.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprintf(to, "%s%x\n", manifestMAC, m.mac.Sum(nil))
	return err
}

// manifest is a manifest that was read.
type manifest struct {
	database entry
	small    map[string]entry
	sum      blob.Checksum // of the whole manifest

	file       *os.File // private copy without a name, so that nobody can change it
	blobOffset int64    // offset of the lines of large messages in file
	r          *bufio.Reader
	lastBlob   db.ID // the large message read last
	entry      entry
}

func (m *manifest) close() error { return m.file.Close() }

// errManifest reports that a manifest was modified or has another key.
var errManifest = errors.New("it was changed, or made with another secret key")

// readManifest reads and verifies a manifest.
func readManifest(ctx context.Context, dir, name string, key *secret.Key) (*manifest, error) {
	f, _, err := blob.OpenRegular(dir, name)
	if err != nil {
		return nil, err
	}
	defer f.Close() //nolint:errcheck // only read
	m := &manifest{small: map[string]entry{}}
	if m.file, err = os.CreateTemp("", "mailstead-manifest-"); err != nil {
		return nil, err
	}
	err = os.Remove(m.file.Name())
	if err == nil {
		if err = m.load(ctx, f, key); err != nil {
			err = fmt.Errorf("%s: %w", filepath.Join(dir, name), err)
		}
	}
	if err == nil {
		err = m.rewind()
	}
	if err != nil {
		return nil, errors.Join(err, m.close())
	}
	return m, nil
}

// load copies the manifest while it verifies it.
func (m *manifest) load(ctx context.Context, from io.Reader, key *secret.Key) error {
	all, mac := sha256.New(), hmac.New(sha256.New, key.Subkey(manifestPurpose))
	r, w := bufio.NewReaderSize(from, maxManifestLine), bufio.NewWriter(m.file)
	at, last := int64(0), db.ID(0)
	for n := 0; ; n++ {
		if n%1000 == 0 && ctx.Err() != nil {
			return ctx.Err()
		}
		text, err := r.ReadSlice('\n')
		if err != nil {
			return errManifest
		}
		all.Write(text)
		if code, ok := bytes.CutPrefix(text, []byte(manifestMAC)); ok {
			given, err := hex.DecodeString(strings.TrimSuffix(string(code), "\n"))
			if _, more := r.ReadByte(); err != nil || !hmac.Equal(given, mac.Sum(nil)) || !errors.Is(more, io.EOF) {
				return errManifest
			}
			m.sum = blob.Checksum(all.Sum(nil))
			return w.Flush()
		}
		mac.Write(text)
		if _, err := w.Write(text); err != nil {
			return err
		}
		if err := m.addLine(n, string(text), at, &last); err != nil {
			return err
		}
		at += int64(len(text))
	}
}

// addLine processes line n of the manifest, which begins at offset at.
func (m *manifest) addLine(n int, text string, at int64, last *db.ID) error {
	if n == 0 {
		if text != manifestHeader {
			return errors.New("it is of a release that this program does not know")
		}
		return nil
	}
	name, e, err := parseLine(text)
	if err != nil {
		return errManifest
	}
	id, large := parseBlobName(name)
	switch {
	case n == 1 && name == databaseFile:
		m.database = e
	case n == 1:
		return errManifest
	case large && id > *last:
		if *last == 0 {
			m.blobOffset = at
		}
		*last = id
	case isSmallFile(name) && *last == 0 && len(m.small) < maxSmall && e.size <= maxSmallSize:
		m.small[name] = e
	default:
		return errManifest
	}
	return nil
}

// rewind goes back to the first large message.
func (m *manifest) rewind() error {
	if m.blobOffset == 0 { // there is none
		m.r = bufio.NewReader(strings.NewReader(""))
		return nil
	}
	_, err := m.file.Seek(m.blobOffset, io.SeekStart)
	m.r, m.lastBlob = bufio.NewReader(m.file), 0
	return err
}

// blobSum returns the checksum of a large message's file. Callers must ask in ascending order.
func (m *manifest) blobSum(id db.ID) (blob.Checksum, bool) {
	for m.lastBlob < id {
		text, err := m.r.ReadString('\n')
		if err != nil {
			m.lastBlob = 1<<63 - 1
			break
		}
		name, e, err := parseLine(text)
		if err != nil {
			break
		}
		m.lastBlob, _ = parseBlobName(name)
		m.entry = e
	}
	return m.entry.sum, m.lastBlob == id
}

// manifestsIn returns the manifests in a directory.
func manifestsIn(dir string) (names []string, err error) {
	list, err := os.ReadDir(dir)
	for _, e := range list {
		if strings.HasPrefix(e.Name(), manifestPrefix) {
			names = append(names, e.Name())
		}
	}
	return names, err
}
