// SPDX-License-Identifier: Apache-2.0

package blob

import (
	"context"
	"time"

	"github.com/mailstead/mailstead/internal/db"
)

const (
	// SweepAge is how old a file must be before it may be swept: a file
	// without a row may belong to a transaction in progress.
	SweepAge = 24 * time.Hour
	// SweepDelay is how long a file must have been without a row: a caller that
	// loaded its last row may be about to share it (Prepend).
	SweepDelay = time.Hour
)

// RunSweep calls Sweep every hour until ctx ends.
func (s *Store) RunSweep(ctx context.Context, report func(error)) error {
	tick := time.NewTicker(SweepDelay)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		if _, err := s.Sweep(ctx); err != nil && ctx.Err() == nil {
			report(err)
		}
	}
}

// Sweep deletes the files that no row refers to, now and in a Sweep at least SweepDelay earlier.
// Call it about every hour, one call at a time. It returns the number of deleted files.
func (s *Store) Sweep(ctx context.Context) (deleted int, err error) {
	if err := s.Files.CheckOwner(); err != nil {
		return 0, err
	}
	now, unnamed := s.Now(), map[db.ID]time.Time{}
	err = s.Files.Each(ctx, now.Add(-SweepAge), func(name db.ID) error {
		if used, err := db.Exists(ctx, s.DB, fileReferenceQuery.With(name)); used || err != nil {
			return err
		}
		since, known := s.unreferenced[name]
		if !known {
			since = now
		}
		if !known || now.Sub(since) < SweepDelay {
			unnamed[name] = since
			return nil
		}
		if err := s.Files.Delete(ctx, name); err != nil {
			return err
		}
		deleted++
		return nil
	})
	s.unreferenced = unnamed
	return deleted, err
}
