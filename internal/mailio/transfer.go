// SPDX-License-Identifier: Apache-2.0

// Package mailio brings mail in files into mailboxes and out of them: what
// package archive reads is filed, with folders, flags and dates, and what a
// mailbox holds is written.
//
// An import can be sent again after it broke off at any place: a message that
// the folder held when it began is not filed twice, and of two that are alike in
// the archive both are.
package mailio

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/mailstead/mailstead/internal/blob"
	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/folder"
	"github.com/mailstead/mailstead/internal/mailbox"
)

// Transfers that run at once.
const (
	maxPerAccount = 4
	maxRunning    = 64
)

// Service imports and exports. It is safe for concurrent use.
type Service struct {
	Folders *folder.Store
	Blobs   *blob.Store
	Now     func() time.Time
	Log     *slog.Logger

	mu        sync.Mutex
	running   int
	runningOf map[db.ID]int // by account
}

// checkDomain returns a fault.Denied while the domain of a mailbox is suspended.
func (t *Service) checkDomain(ctx context.Context, box db.ID) error {
	err := t.Blobs.DB.One(ctx, mailbox.DomainActiveCheck(box), new(db.ID))
	if errors.Is(err, db.ErrNoRow) {
		return fault.New(fault.Denied, "domain_suspended", "The domain of this mailbox is suspended. Ask the operator of the service.")
	}
	return err
}

// acquire takes the place of a transfer; end gives it back. Too many at once are
// a fault.RateLimited.
func (t *Service) acquire(account db.ID) (end func(), err error) {
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
