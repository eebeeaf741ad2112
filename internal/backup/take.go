// SPDX-License-Identifier: Apache-2.0

// Package backup copies a running service into a directory, and restores a service from one. The
// directory has these files:
//
//	mailstead.db  the whole database at one moment, as an SQLite file whichever
//	              engine the service uses
//	blobs/        the files of large messages in the database
//	secret.key    the key to the secrets in the database, unless a setting
//	              gives it
//	acme/         certificates and the account at their issuer, if any
//	ca.pem, .key  the CA of self-signed certificates, if any
//	manifest-…    sizes and checksums of all these, see manifest
//	backup.json   a description, for people and scripts
//
// From the first run on, it is a complete backup at every moment: the database is renamed into
// place once all its files exist, and files that only the previous one used are removed after that.
package backup

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/mailstead/mailstead/internal/blob"
	"github.com/mailstead/mailstead/internal/datadir"
	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/durable"
	"github.com/mailstead/mailstead/internal/secret"
)

// Files of a backup.
const (
	databaseFile = "mailstead.db"
	blobFolder   = "blobs"
	keyFile      = "secret.key"
	acmeFolder   = "acme"
	caFile       = "ca.pem"
	caKeyFile    = "ca.key"
	infoFile     = "backup.json"
	partFile     = ".mailstead.db.part" // incomplete database
	partPrefix   = ".part-"             // prefix of incomplete small files
)

var knownNames = []string{databaseFile, blobFolder, keyFile, acmeFolder, caFile, caKeyFile}

// ServiceStorage describes where a service stores its data.
type ServiceStorage struct {
	Data     string      // directory
	Database string      // URL as in db.Options
	Blobs    string      // directory
	Key      *secret.Key // only if KeyGiven
	KeyGiven bool        // a setting gives the key, so no file has it
}

// Info is the backup's description of itself.
type Info struct {
	TakenAt       time.Time `json:"taken_at"` // time of the database; files may be newer
	Program       string    `json:"program"`
	Engine        string    `json:"engine"` // used by the service
	DatabaseBytes int64     `json:"database_bytes"`
	Files         int       `json:"files"` // number of large messages' files
	FileBytes     int64     `json:"files_bytes"`
	HasKey        bool      `json:"secret_key"` // the directory has the key
	// FirstAccount is the oldest customer account, which identifies the service; 0 if there is none
	// yet.
	FirstAccount db.ID `json:"first_account"`
	// Manifest is the name of the manifest, and ManifestSum its SHA-256, which identifies the whole
	// backup.
	Manifest    string `json:"manifest"`
	ManifestSum string `json:"manifest_sha256"`
	// Missing are files referenced by the database that were missing or truncated: their messages
	// were already damaged.
	Missing []string `json:"missing_files"`

	NewFiles int `json:"-"` // files new in the directory
}

// Take updates the backup in the directory to, or creates one. Only one may run at a time. Mail
// that arrives meanwhile is not included.
func Take(ctx context.Context, s ServiceStorage, to string, program string) (a Info, err error) {
	if !s.KeyGiven {
		path := filepath.Join(s.Data, keyFile)
		if s.Key, err = secret.ReadKey(path); errors.Is(err, fs.ErrNotExist) {
			err = fmt.Errorf("the service's secret key is not in %s; give it by --secret-key", path)
		}
		if err != nil {
			return a, err
		}
	}
	if err := durable.MkdirAll(to, 0o700); err != nil {
		return a, err
	}
	unlock, alone, err := lockFolder(to)
	if err != nil {
		return a, err
	}
	defer unlock()
	if err := checkNoOtherFiles(to); err != nil {
		return a, err
	}
	if alone {
		if err := removeParts(to); err != nil {
			return a, err
		}
	}
	if err := checkBlobFolder(to, s.Blobs); err != nil {
		return a, err
	}
	if err := checkKey(to, s.Key); err != nil {
		return a, err
	}
	files, err := blob.NewDir(filepath.Join(to, blobFolder))
	if err != nil {
		return a, err
	}
	t := backupRun{service: s, to: to, files: files, info: Info{Program: program, HasKey: !s.KeyGiven, Missing: []string{}}}
	if t.oldInfo, err = readInfo(to); err != nil {
		return a, err
	}
	if err := t.open(ctx); err != nil {
		return a, err
	}
	defer t.close()
	part := filepath.Join(to, partFile+rand.Text())
	defer removeDatabase(part) //nolint:errcheck // the next one does it
	// Files of mail that is deleted during the copy may disappear; a later snapshot doesn't
	// reference them.
	for range 2 {
		if err := t.snapshot(ctx, part); err != nil {
			return a, err
		}
		if len(t.info.Missing) == 0 {
			break
		}
	}
	small, err := t.readSmallFiles()
	if err != nil {
		return a, err
	}
	if err := t.writeManifest(ctx, part, small); err != nil {
		return a, err
	}
	for _, f := range small {
		if err := writeSmallFile(to, f.name, f.text); err != nil {
			return a, err
		}
	}
	if err := durable.Rename(part, filepath.Join(to, databaseFile)); err != nil {
		return a, err
	}
	if err := t.writeInfo(); err != nil {
		return a, err
	}
	return t.info, t.removeStale(ctx, small)
}

// lockFolder excludes a second backup until unlock is called or the process ends. Some network
// shares don't support locks, which doesn't prevent a backup; alone reports whether the lock is
// held.
func lockFolder(dir string) (unlock func(), alone bool, err error) {
	f, err := os.Open(dir)
	if err != nil {
		return nil, false, err
	}
	err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return nil, false, errors.Join(fmt.Errorf("another command works with the backup %s", dir), f.Close())
	}
	return func() { _ = f.Close() }, err == nil, nil
}

// removeParts removes files left by a killed backup.
func removeParts(to string) error {
	list, err := os.ReadDir(to)
	if err != nil {
		return err
	}
	for _, e := range list {
		if strings.HasPrefix(e.Name(), partFile) || strings.HasPrefix(e.Name(), partPrefix) {
			if err := os.Remove(filepath.Join(to, e.Name())); err != nil {
				return err
			}
		}
	}
	return nil
}

// readInfo returns the Info of the existing backup.
func readInfo(to string) (a Info, err error) {
	text, err := readSmallFile(to, infoFile)
	if errors.Is(err, fs.ErrNotExist) {
		return a, nil
	}
	if err == nil {
		err = json.Unmarshal(text, &a)
	}
	return a, err
}

// checkNoOtherFiles rejects a directory with other files in it: a backup deletes message files that
// it doesn't reference.
func checkNoOtherFiles(to string) error {
	list, err := os.ReadDir(to)
	if err != nil {
		return err
	}
	var others, ours bool
	for _, e := range list {
		switch name := e.Name(); {
		case name == datadir.LockFile:
			return fmt.Errorf("%s is the data folder of a service; name another folder for the backup", to)
		case name == infoFile:
			ours = true
		case strings.HasPrefix(name, manifestPrefix):
		case !slices.Contains(knownNames, name) && !strings.HasPrefix(name, partFile) && !strings.HasPrefix(name, partPrefix):
			others = true // more than an interrupted first backup leaves
		}
	}
	if others && !ours {
		return fmt.Errorf("%s has something else in it; name a folder for the backup alone, or a new one", to)
	}
	return nil
}

// checkBlobFolder rejects a directory that the service stores its own files in: either would delete
// files of the other.
func checkBlobFolder(to, blobs string) error {
	ours, err := os.Stat(filepath.Join(to, blobFolder))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if theirs, err := os.Stat(blobs); err == nil && os.SameFile(ours, theirs) {
		return fmt.Errorf("%s is the service's own folder of large messages; name another folder for the backup", blobs)
	}
	return nil
}

// checkKey rejects the backup of another service. An example is a service that lost its data and
// was replaced by a new one.
func checkKey(to string, key *secret.Key) error {
	path := filepath.Join(to, keyFile)
	text, err := readSmallFile(to, keyFile) // with any mode: not every file system has modes
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	former, err := secret.ParseKey(string(text))
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	if former.Fingerprint() != key.Fingerprint() {
		return fmt.Errorf("%s is the backup of another service, with another secret key; name another folder", to)
	}
	return nil
}

// backupRun is the state of a backup.
type backupRun struct {
	service    ServiceStorage
	to         string
	files      *blob.Dir
	oldInfo    Info
	info       Info
	staleBlobs []db.ID // files that only the previous database references

	oldManifest *manifest // previous manifest, which may have checksums; nil for none
	blobLines   *os.File  // lines of large messages, for the manifest
}

// snapshot copies the database, and those of its files that the backup doesn't have yet.
func (t *backupRun) snapshot(ctx context.Context, part string) (err error) {
	if err := removeDatabase(part); err != nil {
		return err
	}
	t.info.TakenAt = time.Now().UTC().Truncate(time.Second)
	if err := db.Snapshot(ctx, t.service.Database, part); err != nil {
		return err
	}
	d, err := db.Open(ctx, db.Options{URL: "sqlite:" + part, Exclusive: true})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.Close()) }()
	t.info.Engine = "sqlite"
	if !strings.HasPrefix(t.service.Database, "sqlite:") {
		t.info.Engine = "postgres"
	}
	if err := d.BindSecretKey(ctx, t.service.Key.Fingerprint()); err != nil {
		return err
	}
	if err := t.checkAccounts(ctx, d); err != nil {
		return err
	}
	if info, err := os.Stat(part); err == nil {
		t.info.DatabaseBytes = info.Size()
	}
	sums, flush, err := t.newSums()
	if err != nil {
		return err
	}
	c, err := (&blob.Store{DB: d, Files: blob.ExistingDir(t.service.Blobs), Now: time.Now}).CopyFiles(ctx, t.files, sums)
	if err = errors.Join(err, flush()); err != nil {
		return err
	}
	t.info.Files, t.info.FileBytes, t.info.NewFiles = c.Files, c.Bytes, t.info.NewFiles+c.Added
	t.info.Missing = append(append(t.info.Missing[:0], c.Missing...), c.Mismatched...)
	t.staleBlobs, err = (&blob.Store{DB: d, Files: t.files, Now: time.Now}).UnreferencedFiles(ctx)
	return err
}

// firstAccount skips the operators' account, which is number 1 in every service.
var firstAccount = db.SQL(`SELECT id FROM account WHERE id > 1 ORDER BY id LIMIT 1`)

// checkAccounts refuses to replace the backup of a service with other accounts. An example is a
// service that lost its data and was replaced by a new one with the same key.
func (t *backupRun) checkAccounts(ctx context.Context, d *db.DB) error {
	if err := db.IfNoRow(d.One(ctx, firstAccount.With(), &t.info.FirstAccount), nil); err != nil {
		return err
	}
	if t.oldInfo.FirstAccount != 0 && t.oldInfo.FirstAccount != t.info.FirstAccount {
		return fmt.Errorf("%s is the backup of another service, with other accounts; name another folder", t.to)
	}
	return nil
}

// writeInfo writes backup.json.
func (t *backupRun) writeInfo() error {
	text, err := json.MarshalIndent(t.info, "", "  ")
	if err != nil {
		return err
	}
	return writeFile(filepath.Join(t.to, infoFile), append(text, '\n'))
}
