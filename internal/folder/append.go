// SPDX-License-Identifier: Apache-2.0

package folder

import (
	"context"
	"time"

	"github.com/mailstead/mailstead/internal/blob"
	"github.com/mailstead/mailstead/internal/db"
)

// Upload is a message that a client puts into a folder.
type Upload struct {
	Blob *blob.Blob // gets its row here; the caller discards it if Append fails
	Description
	Flags    Flags
	Keywords []string
	Date     time.Time // internal date; zero for now
}

// Append puts messages into a folder in one commit, all of them or none, and
// returns their UIDs in order. No such folder is a fault.NotFound, no room a
// fault.OverQuota, bad keywords a fault.Invalid.
func (s *Store) Append(ctx context.Context, mailbox db.ID, name string, messages ...Upload) (uidvalidity uint32, uids []uint32, err error) {
	return 0, nil, errNotBuilt
}
