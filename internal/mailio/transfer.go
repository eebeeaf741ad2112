// SPDX-License-Identifier: Apache-2.0

// Package mailio imports mail files into mailboxes and exports mailboxes to files. It uses package
// mailfile to read and write them, and preserves folders, flags and dates.
//
// An interrupted import can be repeated: a message that was in the folder when the import began is
// not filed again. Of two identical messages in the archive, both are filed.
package mailio

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/mailstead/mailstead/internal/blob"
	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/folder"
	"github.com/mailstead/mailstead/internal/mailbox"
)

// Limits of concurrent transfers.
const (
	maxPerAccount = 4
	maxRunning    = 64
)

// Service imports and exports mail. It is safe for concurrent use.
type Service struct {
	Folders *folder.Folders
	Blobs   *blob.Store
	Now     func() time.Time
	Log     *slog.Logger

	mu        sync.Mutex
	running   int
	runningOf map[db.ID]int // by account
}

// checkDomain returns a fault.Denied if the domain of a mailbox is suspended.
func (t *Service) checkDomain(ctx context.Context, box db.ID) error {
	active, err := db.Exists(ctx, t.Blobs.DB, mailbox.DomainActiveCheck(box))
	if err == nil && !active {
		err = fault.New(fault.Denied, "domain_suspended", "The domain of this mailbox is suspended. Ask the operator of the service.")
	}
	return err
}

// acquireSlot takes a transfer slot; end releases it. It returns a fault.RateLimited if too many
// transfers run.
func (t *Service) acquireSlot(account db.ID) (end func(), err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.runningOf == nil {
		t.runningOf = map[db.ID]int{}
	}
	if t.running >= maxRunning || t.runningOf[account] >= maxPerAccount {
		limited := fault.New(fault.RateLimited, "too_many_transfers", "There can be %d imports and exports of an account at once. Wait for one to end.", maxPerAccount)
		limited.RetryAfter = 10 * time.Second
		return nil, limited
	}
	t.running++
	t.runningOf[account]++
	return sync.OnceFunc(func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.running--
		if t.runningOf[account]--; t.runningOf[account] == 0 {
			delete(t.runningOf, account)
		}
	}), nil
}
