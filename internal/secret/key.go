// SPDX-License-Identifier: Apache-2.0

// Package secret manages the server key. It seals secrets at rest, signs return paths, and
// generates tokens and passwords.
package secret

import (
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/mailstead/mailstead/internal/durable"
)

// keySize is the length of the server key and of each sub-key in bytes.
const keySize = 32

// maxKeyFileSize is the maximum number of bytes that are read from a key file.
const maxKeyFileSize = 4096

// Key is the server key. It is never used directly: each purpose has its own sub-key. It never
// shows in a log or in %v.
type Key struct {
	raw         [keySize]byte
	returnPath  []byte
	unsubscribe []byte
}

func newKey(raw []byte) (*Key, error) {
	if len(raw) != keySize {
		return nil, fmt.Errorf("secret key: has %d bytes, must be %d", len(raw), keySize)
	}
	k := &Key{}
	copy(k.raw[:], raw)
	k.returnPath = k.Subkey("return-path")
	k.unsubscribe = k.Subkey("unsubscribe-path")
	return k, nil
}

// ParseKey parses a key from the text of a setting: 32 bytes as hexadecimal, or as base64 in either
// alphabet, padded or not. Space around it is ignored.
func ParseKey(s string) (*Key, error) {
	s = strings.TrimSpace(s)
	if len(s) == hex.EncodedLen(keySize) {
		if raw, err := hex.DecodeString(s); err == nil {
			return newKey(raw)
		}
	}
	s = strings.NewReplacer("-", "+", "_", "/").Replace(strings.TrimRight(s, "="))
	raw, err := base64.RawStdEncoding.DecodeString(s)
	if err != nil || len(raw) != keySize {
		return nil, errors.New("secret key: must be 32 bytes as hexadecimal (64 characters) or base64 (44)")
	}
	return newKey(raw)
}

// LoadOrCreateKey reads the key from a file. If there is none, it creates the file (mode 0600,
// flushed to disk together with its folder) with a new key. It returns an error for a file that
// other users may read. Two processes that start at the same time get the same key.
func LoadOrCreateKey(path string) (*Key, error) {
	k, err := ReadKey(path)
	if !errors.Is(err, fs.ErrNotExist) {
		return k, err
	}
	if err := createKeyFile(path); err != nil {
		return nil, fmt.Errorf("making secret key: %w", err)
	}
	return ReadKey(path)
}

// ReadKey is LoadOrCreateKey without creating the file: a missing file is fs.ErrNotExist.
func ReadKey(path string) (*Key, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("opening secret key: %w", err)
	}
	defer func() { _ = f.Close() }()
	info, err := f.Stat()
	if err != nil {
		return nil, fmt.Errorf("reading secret key: %w", err)
	}
	if mode := info.Mode().Perm(); mode&0o077 != 0 {
		return nil, fmt.Errorf("secret key %s: others may read it (mode %04o); run chmod 600 on it", path, mode)
	}
	text, err := io.ReadAll(io.LimitReader(f, maxKeyFileSize))
	if err != nil {
		return nil, fmt.Errorf("reading secret key: %w", err)
	}
	k, err := ParseKey(string(text))
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", path, err)
	}
	return k, nil
}

// createKeyFile writes a new key beside path and links it into place, so that a crash or a second
// process never leaves or reads half a key.
func createKeyFile(path string) error {
	raw := make([]byte, keySize)
	rand.Read(raw) // never fails: crypto/rand ends the process instead
	tmp := fmt.Sprintf("%s.%s", path, rand.Text()[:8])
	if err := writeSynced(tmp, []byte(hex.EncodeToString(raw)+"\n")); err != nil {
		return errors.Join(err, ignoreMissing(os.Remove(tmp)))
	}
	err := os.Link(tmp, path)
	if errors.Is(err, fs.ErrExist) {
		err = nil // another process was first: use its key
	}
	if err := errors.Join(err, os.Remove(tmp)); err != nil {
		return err
	}
	return durable.SyncDir(filepath.Dir(path))
}

func writeSynced(path string, text []byte) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	return errors.Join(err, f.Sync(), f.Close())
}

func ignoreMissing(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// Subkey returns the 32-byte sub-key for a purpose (HKDF-SHA256, RFC 5869). It is the same for the
// same key and purpose on every node, and reveals nothing about other sub-keys.
func (k *Key) Subkey(purpose string) []byte {
	sub, err := hkdf.Key(sha256.New, k.raw[:], nil, "mailstead "+purpose, keySize)
	if err != nil {
		panic("secret: HKDF refuses fixed lengths: " + err.Error())
	}
	return sub
}

// Fingerprint returns 16 hexadecimal digits that identify the key without revealing it. Nodes that
// share a database compare theirs.
func (k *Key) Fingerprint() string {
	return hex.EncodeToString(k.Subkey("fingerprint")[:8])
}

// Format keeps the key out of logs, for any verb.
func (k *Key) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, "[secret key]") }
