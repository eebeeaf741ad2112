// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"

	"github.com/mailstead/mailstead/internal/backup"
	"github.com/mailstead/mailstead/internal/bytesize"
	"github.com/mailstead/mailstead/internal/server"
)

type restoreCommand struct {
	storageFlags
	Hold       bool   `help:"Keep what was waiting to be sent until \"mailstead queue release --all --once\". Without it that is sent once the service runs, again if it had been sent since the backup." env:"-"`
	Moved      bool   `help:"The service was stopped before the backup was taken and has not run since: folders keep their UIDVALIDITY. Without it mail clients download their folders again." env:"-"`
	EndKeys    bool   `help:"Delete all API keys and app passwords. Without it they work as when the backup was taken, also those that were deleted since." env:"-"`
	Manifest   string `help:"The SHA-256 of the backup's manifest, as \"mailstead backup\" printed it: no other backup is restored." env:"-" placeholder:"SUM"`
	Unverified bool   `help:"Restore a backup without a manifest, as releases before the first manifest made it: its files are not compared with what they were." env:"-"`
	Folder     string `arg:"" help:"The backup's folder."`
}

// Run restores a service from a backup. The service must not run, and neither the data directory
// nor the database may have one already.
func (c *restoreCommand) Run() error {
	ctx, stop := signalContext()
	defer stop()
	if c.Unverified && c.Manifest != "" {
		return errors.New("--manifest and --unverified exclude each other")
	}
	done, err := server.Restore(ctx, c.config(), c.Folder, backup.RestoreOptions{
		Moved: c.Moved, Hold: c.Hold, RevokeKeys: c.EndKeys, Unverified: c.Unverified, Manifest: c.Manifest,
	})
	if err != nil && ctx.Err() != nil {
		return errors.New("interrupted; the service is not restored, begin again")
	}
	if err != nil {
		return err
	}
	fmt.Printf("%s: restored, with %d large messages (%s)\n", printable(c.Data, 300), done.Files, bytesize.Format(done.Bytes))
	c.printAccess(&done)
	if done.Extra > 0 {
		fmt.Printf("%d files in the folder are not of the backup and were left there, such as %s\n", done.Extra, printable(done.FirstExtra, 300))
	}
	return incompleteError("restored", done.Missing, done.Mismatched)
}

// printAccess prints whose access ended with the restore, and whose is valid again.
func (c *restoreCommand) printAccess(done *backup.RestoreResult) {
	fmt.Printf("ended: %d sessions of the dashboard and %d links (invitations, new passwords, setup, profiles)\n", done.Sessions, done.Links)
	switch {
	case c.EndKeys:
		fmt.Printf("deleted: %d API keys and %d app passwords\n", done.Keys, done.AppPasswords)
		return
	case c.Moved || done.Keys+done.AppPasswords == 0:
		return
	}
	fmt.Printf("%d API keys and %d app passwords work as when the backup was taken, also those that were deleted since:\n"+
		"see \"mailstead key list\" and \"mailstead key delete\", or restore with --end-keys\n", done.Keys, done.AppPasswords)
	for _, k := range done.KeyNames {
		fmt.Printf("  %s  %s  %s  %s\n", k.ID, printable(k.Hint, 20), printable(k.Email, 100), printable(k.Name, 100))
	}
	if more := done.Keys - int64(len(done.KeyNames)); more > 0 {
		fmt.Printf("  and %d more\n", more)
	}
}
