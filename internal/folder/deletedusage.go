// SPDX-License-Identifier: Apache-2.0

package folder

import (
	"context"

	"github.com/mailstead/mailstead/internal/db"
)

// DeletedUsage returns how many messages of a folder have the Deleted flag, and how many bytes of
// the quota they use. It uses the node's shared view, which it loads if the folder is not open. It
// returns a fault.NotFound if the folder is gone.
func (s *Folders) DeletedUsage(ctx context.Context, id db.ID) (messages uint32, bytes int64, err error) {
	sh := s.acquireView(id)
	defer s.releaseView(sh)
	if err := sh.refresh(ctx, true); err != nil {
		return 0, 0, err
	}
	snap, _ := sh.current()
	all := selectDeleted(snap)
	return uint32(all.messages), all.bytes + all.surcharge, nil
}
