// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"

	"github.com/mailstead/mailstead/internal/server"
)

type restoreCommand struct {
	kept
	Hold   bool   `help:"Keep what was waiting to be sent until \"mailstead queue release --all --once\". Without it that is sent once the service runs, again if it had been sent since the backup." env:"-"`
	Moved  bool   `help:"The service was stopped before the backup was taken and has not run since: folders keep their UIDVALIDITY. Without it mail clients read their folders anew." env:"-"`
	Folder string `arg:"" help:"The backup's folder."`
}

// Run makes a service of a backup; it must not run yet, and there must be none in
// the data folder or in the database.
func (c *restoreCommand) Run() error {
	ctx, stop := untilSignal()
	defer stop()
	files, err := server.Restore(ctx, c.config(), c.Folder, server.Restoring{Moved: c.Moved, Hold: c.Hold})
	if err != nil && ctx.Err() != nil {
		return errors.New("interrupted; the service is not restored, begin again")
	}
	if err != nil {
		return plain(err)
	}
	fmt.Printf("%s: restored, with %d large messages (%s)\n", printable(c.Data, 300), files.Files, size(files.Bytes))
	return missing("restored", files.Missing)
}
