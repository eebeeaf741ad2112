// SPDX-License-Identifier: Apache-2.0

package blob

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/fault"
)

// ownerFile is the file in a folder that names the owning service, databaseFile the one that names
// the database: a new or copied database may have the same secret key.
const (
	ownerFile    = "service"
	databaseFile = "database"
)

var anyFileQuery = db.SQL(`SELECT file FROM blob WHERE file > 0 ORDER BY file LIMIT 1`)

// OpenDir is NewDir for the service that owner names. It returns a fault.Conflict for the folder of
// another service, whose files it would sweep as unreferenced. It also returns one for a folder
// that was never used while the database refers to files: the real one is not mounted, and would
// hide new files later. CheckOwner checks whether the folder belongs to another database.
func OpenDir(ctx context.Context, d *db.DB, dir, owner string) (*Dir, error) {
	if _, err := os.Stat(filepath.Join(dir, "new")); errors.Is(err, fs.ErrNotExist) {
		var file db.ID
		err := d.One(ctx, anyFileQuery.With(), &file)
		if err == nil {
			_, err = os.Stat((&Dir{dir: dir}).path(file)) // some backups omit empty folders
		}
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return nil, fault.New(fault.Conflict, "other_blob_folder", "The large messages of this database are not in %[1]s. "+
				"Look whether it is mounted, and whether --blobs is right. If they are lost, make the folder %[1]s/new to start without them.", dir)
		case err != nil && !errors.Is(err, db.ErrNoRow):
			return nil, err
		}
	}
	f, err := NewDir(dir)
	if err == nil {
		err = f.claimOwner(owner)
	}
	if err == nil {
		f.database, err = d.InstanceName(ctx)
	}
	return f, err
}

// CheckOwner records the database in the folder, or returns a fault.Conflict if another is recorded
// there. As the other one may have been restored from a backup, or lost, the folder can be read and
// written all the same. A failure to record is also an error: another database may have failed to
// record itself.
func (f *Dir) CheckOwner() error {
	if f.database == "" {
		return nil
	}
	name := filepath.Join(f.dir, databaseFile)
	found, err := os.ReadFile(name)
	if errors.Is(err, fs.ErrNotExist) {
		return f.writeMarkerFile(name, f.database)
	}
	if err == nil && string(found) != f.database+"\n" {
		err = fault.New(fault.Conflict, "other_database",
			"The folder %s is another database's, with the same secret key: none of its files are deleted. Give each service a folder of its own, by --blobs. "+
				"If the other database is used no more, delete %s.", f.dir, name)
	}
	return err
}

// claimOwner records the owner of the folder, unless it has another one.
func (f *Dir) claimOwner(owner string) error {
	name := filepath.Join(f.dir, ownerFile)
	found, err := os.ReadFile(name)
	if errors.Is(err, fs.ErrNotExist) {
		_ = f.writeMarkerFile(name, owner) // with a full disk, mail can still be read; the next start records it
		return nil
	}
	if err == nil && string(found) != owner+"\n" {
		err = fault.New(fault.Conflict, "other_blob_folder",
			"The folder %s is another service's, with another secret key. Give each service a folder of its own, by --blobs.", f.dir)
	}
	return err
}

func (f *Dir) writeMarkerFile(name, text string) error {
	tmp, err := os.CreateTemp(filepath.Join(f.dir, "new"), "")
	if err != nil {
		return err
	}
	w := &dirFile{File: tmp, finalPath: name}
	defer w.Abort()
	if _, err := w.WriteString(text + "\n"); err != nil {
		return err
	}
	return w.Commit()
}
