// SPDX-License-Identifier: Apache-2.0

package folder

import (
	"context"
	"maps"
	"slices"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/notify"
)

// modSeqsQuery reads the mod-sequences of some folders. Only PostgreSQL runs it: on SQLite one
// process makes all changes, so no signal gets lost.
var modSeqsQuery = db.SQL(`SELECT id, modseq FROM folder
		{postgres}WHERE id = ANY($1)
		{sqlite}WHERE id IN (SELECT value FROM json_each($1))
	`)

// pollPageFolders is how many folders one statement reads.
const pollPageFolders = 5_000

// pollOpenFolders wakes the sessions of open folders that have changed, or are gone, without a
// signal.
func (s *Folders) pollOpenFolders(ctx context.Context) error {
	known := map[int64]uint64{}
	s.mu.Lock()
	for id, sh := range s.open {
		if sh.refs > 0 {
			sh.mu.Lock()
			known[int64(id)] = sh.row.ModSeq
			sh.mu.Unlock()
		}
	}
	s.mu.Unlock()
	for ids := range slices.Chunk(slices.Collect(maps.Keys(known)), pollPageFolders) {
		err := s.DB.Each(ctx, modSeqsQuery.With(ids), func(r db.Row) error {
			var id int64
			var modseq uint64
			err := r.Scan(&id, &modseq)
			if known[id] == modseq {
				delete(known, id)
			}
			return err
		})
		if err != nil {
			return err
		}
	}
	for id := range known {
		s.Hub.Receive([]notify.Key{{Kind: notify.Folder, ID: id}})
	}
	return nil
}
