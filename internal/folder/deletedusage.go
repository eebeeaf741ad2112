// SPDX-License-Identifier: Apache-2.0

package folder

import (
	"context"

	"github.com/mailstead/mailstead/internal/db"
)

// DeletedUsage returns how many messages of a folder have the Deleted flag, and how much
// of the quota they use, in bytes. The node's view tells it: a folder that nobody has open is read
// once. A folder that is gone is a fault.NotFound.
func (s *Store) DeletedUsage(ctx context.Context, id db.ID) (messages uint32, bytes int64, err error) {
	sh := s.acquireView(id)
	defer s.releaseView(sh)
	if err := sh.refresh(ctx, true); err != nil {
		return 0, 0, err
	}
	snap, _ := sh.current()
	all := selectDeleted(snap)
	return uint32(all.messages), all.bytes + all.surcharge, nil
}
