// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"

	"github.com/mailstead/mailstead/internal/backup"
	"github.com/mailstead/mailstead/internal/secret"
)

// Backup updates the backup of a service in a folder, whether or not the service is running. Of
// the settings it only needs the locations.
func Backup(ctx context.Context, c Config, to string) (backup.Info, error) {
	if err := c.checkInitialized(ctx); err != nil {
		return backup.Info{}, err
	}
	s, err := c.backupService()
	if err != nil {
		return backup.Info{}, err
	}
	return backup.Take(ctx, s, to, Version)
}

// Restore restores a backup to a data folder and database on which no service has run.
func Restore(ctx context.Context, c Config, from string, o backup.RestoreOptions) (done backup.RestoreResult, err error) {
	s, err := c.backupService()
	if err != nil {
		return done, err
	}
	return backup.Restore(ctx, from, s, o)
}

// backupService returns the locations of the service's data, and its secret key if given.
func (c *Config) backupService() (s backup.ServiceStorage, err error) {
	if err := c.checkBlobs(); err != nil {
		return s, err
	}
	s = backup.ServiceStorage{Data: c.Data, Database: c.databaseURL(), Blobs: c.Blobs, KeyGiven: c.SecretKey != ""}
	if s.KeyGiven {
		s.Key, err = secret.ParseKey(c.SecretKey)
	}
	return s, err
}
