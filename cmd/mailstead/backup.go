// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"

	"github.com/mailstead/mailstead/internal/bytesize"
	"github.com/mailstead/mailstead/internal/server"
)

// storageFlags are the flags that name the service's data.
type storageFlags struct {
	serviceFlags
	Blobs     string     `help:"The service's folder for large messages; by default \"blobs\" in the data folder." placeholder:"DIR"`
	SecretKey string     `help:"The service's secret key, if that is not in the data folder." placeholder:"KEY"`
	File      configFile `name:"config" help:"TOML file with any of the service's settings." placeholder:"FILE"`
}

func (k *storageFlags) config() server.Config {
	return server.Config{Data: k.Data, Database: k.Database, Blobs: k.Blobs, SecretKey: k.SecretKey}
}

type backupCommand struct {
	storageFlags
	Folder string `arg:"" help:"The backup's folder: a new one, or that of a former backup, which is brought up to date."`
}

// Run makes a backup and prints what it copied. Lost files of messages are an error, although
// everything else is in the backup.
func (c *backupCommand) Run() error {
	ctx, stop := signalContext()
	defer stop()
	about, err := server.Backup(ctx, c.config(), c.Folder)
	if err != nil && ctx.Err() != nil {
		return errors.New("interrupted; a former backup in the folder is as it was")
	}
	if err != nil {
		return err
	}
	key := "and the secret key"
	if !about.HasKey {
		key = "without the secret key, which is a setting"
	}
	fmt.Printf("%s: the database (%s) and %d large messages (%s; %d of them new), %s\n",
		printable(c.Folder, 300), bytesize.Format(about.DatabaseBytes), about.Files, bytesize.Format(about.FileBytes), about.NewFiles, key)
	fmt.Printf("manifest %s\n", about.ManifestSum)
	return incompleteError("backed up", about.Missing, nil)
}

// incompleteError returns the error for files that are missing or have been changed.
func incompleteError(done string, missing, wrong []string) error {
	switch {
	case len(missing)+len(wrong) == 0:
		return nil
	case len(wrong) == 0:
		return fmt.Errorf("all else is %s, but %d files are lost, such as %s", done, len(missing), printable(missing[0], 300))
	case len(missing) == 0:
		return fmt.Errorf("all else is %s, but %d files are not what they were and were left out, such as %s", done, len(wrong), printable(wrong[0], 300))
	}
	return fmt.Errorf("all else is %s, but %d files are lost, such as %s, and %d are not what they were and were left out, such as %s",
		done, len(missing), printable(missing[0], 300), len(wrong), printable(wrong[0], 300))
}
