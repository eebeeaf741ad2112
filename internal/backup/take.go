// SPDX-License-Identifier: Apache-2.0

// Package backup copies a service into a folder, while it runs, and makes a
// service of such a folder again. The folder holds
//
//	mailstead.db  all of the database, as of one moment, as a file of SQLite
//	              whichever engine the service uses
//	blobs/        the files of large messages that the database names
//	secret.key    what opens the secrets in the database, unless it is given
//	              by a setting
//	acme/         certificates and the account at their issuer, if there are any
//	ca.pem, .key  the authority of self-signed certificates, likewise
//	manifest-…    sizes and sums of all these, see manifest
//	backup.json   what this is, for people and scripts
//
// At every moment from the first time on it is a whole backup: the database gets
// its name only when all that it names is there, and what only the former one
// named goes after that.
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
	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/durable"
	"github.com/mailstead/mailstead/internal/secret"
)

// What is in a backup.
const (
	databaseFile = "mailstead.db"
	blobFolder   = "blobs"
	keyFile      = "secret.key"
	acmeFolder   = "acme"
	caFile       = "ca.pem"
	caKeyFile    = "ca.key"
	infoFile     = "backup.json"
	partFile     = ".mailstead.db.part" // a database that is not whole yet
	partPrefix   = ".part-"             // of the names of small files that are not whole yet
)

var knownNames = []string{databaseFile, blobFolder, keyFile, acmeFolder, caFile, caKeyFile}

// Service says where a service keeps what it has.
type Service struct {
	Data     string // folder
	Database string // URL, as db.Options has it
	Blobs    string // folder
	Key      *secret.Key
	KeyGiven bool // by a setting, so that it is in no file
}

// Info is what a backup says of itself.
type Info struct {
	TakenAt       time.Time `json:"taken_at"` // of the database; files may be younger
	Program       string    `json:"program"`
	Engine        string    `json:"engine"` // that the service used
	DatabaseBytes int64     `json:"database_bytes"`
	Files         int       `json:"files"` // of large messages
	FileBytes     int64     `json:"files_bytes"`
	HasKey        bool      `json:"secret_key"` // is in the folder
	// FirstAccount is the oldest account of a customer, by which the service is known; 0:
	// there is none yet.
	FirstAccount db.ID `json:"first_account"`
	// Manifest is the name of the list of files, and Sum its SHA-256, by which all
	// of the backup is known.
	Manifest    string `json:"manifest"`
	ManifestSum string `json:"manifest_sha256"`
	// Missing are files that were not there, or too short, although the database
	// names them: what is lost of these messages was lost before.
	Missing []string `json:"missing_files"`

	NewFiles int `json:"-"` // files that were not in the folder yet
}

// Take brings the backup in the folder to up to date, or begins one. Two at once
// refuse each other. Mail that comes while it is taken is not in it.
func Take(ctx context.Context, s Service, to string, program string) (a Info, err error) {
	if err := durable.MkdirAll(to, 0o700); err != nil {
		return a, err
	}
	unlock, alone, err := lockFolder(to)
	if err != nil {
		return a, err
	}
	defer unlock()
	if err := checkContents(to); err != nil {
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
	// Files of mail that is deleted while they are copied may go; a snapshot taken
	// after that does not name them.
	for range 2 {
		if err := t.snapshot(ctx, part); err != nil {
			return a, err
		}
		if len(t.info.Missing) == 0 {
			break
		}
	}
	small, err := t.readSmall()
	if err != nil {
		return a, err
	}
	if err := t.writeManifest(ctx, part, small); err != nil {
		return a, err
	}
	for _, f := range small {
		if err := writeSmall(to, f.name, f.text); err != nil {
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

// lockFolder keeps a second backup out of the folder, until unlock is called or the
// process ends. Some network shares have no locks, which is no reason for no
// backup; alone says that this one has.
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

// removeParts removes what was left by one that was killed.
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

// readInfo is what the backup that is there says of itself.
func readInfo(to string) (a Info, err error) {
	text, err := readSmall(to, infoFile)
	if errors.Is(err, fs.ErrNotExist) {
		return a, nil
	}
	if err == nil {
		err = json.Unmarshal(text, &a)
	}
	return a, err
}

// checkContents refuses a folder with other things in it: a backup deletes the files of
// messages that it does not name.
func checkContents(to string) error {
	list, err := os.ReadDir(to)
	if err != nil {
		return err
	}
	var others, ours bool
	for _, e := range list {
		switch name := e.Name(); {
		case name == "lock":
			return fmt.Errorf("%s is the data folder of a service; name another folder for the backup", to)
		case name == infoFile:
			ours = true
		case strings.HasPrefix(name, manifestPrefix):
		case !slices.Contains(knownNames, name) && !strings.HasPrefix(name, partFile) && !strings.HasPrefix(name, partPrefix):
			others = true // than what a first one leaves that was interrupted
		}
	}
	if others && !ours {
		return fmt.Errorf("%s has something else in it; name a folder for the backup alone, or a new one", to)
	}
	return nil
}

// checkBlobFolder refuses a folder whose files are the service's own: one of the two would
// delete what the other needs.
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

// checkKey refuses the backup of another service, such as the one in whose place a
// new one was started when its data was lost.
func checkKey(to string, key *secret.Key) error {
	path := filepath.Join(to, keyFile)
	text, err := readSmall(to, keyFile) // whatever its mode: not every file system has them
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

// backupRun is a backup that is being taken.
type backupRun struct {
	service    Service
	to         string
	files      *blob.Dir
	oldInfo    Info
	info       Info
	staleBlobs []db.ID // files that only the former database names

	oldManifest *manifest // a former one, which may know the sums of files; nil for none
	blobLines   *os.File  // those of large messages, for the manifest
}

// snapshot takes the database, and copies the files that it names and that are not
// there yet.
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

// firstAccount leaves out the operators' own, which each service has under number 1.
var firstAccount = db.SQL(`SELECT id FROM account WHERE id > 1 ORDER BY id LIMIT 1`)

// checkAccounts refuses to replace the backup of a service that has other accounts, such as
// the one whose data was lost before a new one was started with its key.
func (t *backupRun) checkAccounts(ctx context.Context, d *db.DB) error {
	err := d.One(ctx, firstAccount.With(), &t.info.FirstAccount)
	if err != nil && !errors.Is(err, db.ErrNoRow) {
		return err
	}
	if t.oldInfo.FirstAccount != 0 && t.oldInfo.FirstAccount != t.info.FirstAccount {
		return fmt.Errorf("%s is the backup of another service, with other accounts; name another folder", t.to)
	}
	return nil
}

// writeInfo writes what the backup is.
func (t *backupRun) writeInfo() error {
	text, err := json.MarshalIndent(t.info, "", "  ")
	if err != nil {
		return err
	}
	return writeFile(filepath.Join(t.to, infoFile), append(text, '\n'))
}
