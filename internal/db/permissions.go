// SPDX-License-Identifier: Apache-2.0

package db

import (
	"errors"
	"io/fs"
	"os"
)

// RestrictPermissions removes all access of other users to a SQLite file and its logs, as SQLite
// creates files that everyone may read. It creates the file if it does not exist. The group's
// permissions stay.
func RestrictPermissions(path string) error {
	// Don't open an existing file: to close it would release SQLite's locks on it.
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err == nil {
		err = f.Close()
	}
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	for _, name := range []string{path, path + "-wal", path + "-shm"} {
		info, err := os.Stat(name)
		if err == nil && info.Mode()&0o007 != 0 {
			err = os.Chmod(name, info.Mode()&^0o007)
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, fs.ErrPermission) { // another user's file stays unchanged
			return err
		}
	}
	return nil
}
