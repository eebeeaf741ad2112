// SPDX-License-Identifier: Apache-2.0

package folder

import (
	"context"
	"time"

	"github.com/mailstead/mailstead/internal/blob"
	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/event"
)

// Incoming is a message to be filed.
type Incoming struct {
	Mailbox db.ID
	Special string // Junk, Sent and so on; "" for INBOX, as when there is no such folder
	// Blob holds the bytes; it gets its row here. Several Incomings may have
	// the same one. The caller discards it if filing fails.
	Blob *blob.Blob
	Description
	Outbound db.ID // the outbound_message that this is a delivery of; 0 for none
	Flags    Flags
	Keywords []string
	Date     time.Time // internal date; zero for now
	// Event, if not nil, makes the event that is recorded in the same commit.
	// It may be called more than once, from another goroutine.
	Event func(Filed) event.New
	// Also are statements of the same commit.
	Also []db.Statement
}

// Filed is where a message was put.
type Filed struct {
	Folder      db.ID
	Message     db.ID
	UIDValidity uint32
	UID         uint32
	ModSeq      uint64
}

// Deliver files a message and returns once that is durable. It may overrun the
// quota. A mailbox without folders is a fault.NotFound.
func (s *Store) Deliver(ctx context.Context, in Incoming) (Filed, error) {
	filed, err := s.DeliverAll(ctx, []Incoming{in})
	if err != nil {
		return Filed{}, err
	}
	return filed[0], nil
}

// DeliverAll files messages for several recipients in one commit: all of them
// or none. The answers are in the order of ins.
func (s *Store) DeliverAll(ctx context.Context, ins []Incoming) ([]Filed, error) {
	return nil, errNotBuilt
}
