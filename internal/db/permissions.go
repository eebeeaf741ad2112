// SPDX-License-Identifier: Apache-2.0

package db

import (
	"errors"
	"io/fs"
	"os"
)

// RestrictPermissions keeps a database file of SQLite, and its logs, from the machine's other
// users, whatever the folder lets them do: SQLite itself makes files that all may
// read. It makes the file when it is not there. A group that may read stays.
func RestrictPermissions(path string) error {
	// One that is there is not opened: to close it would end SQLite's locks on it.
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
		if err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, fs.ErrPermission) { // another user's file is his to keep
			return err
		}
	}
	return nil
}
