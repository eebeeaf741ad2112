// SPDX-License-Identifier: Apache-2.0

// Package transfer brings mail in files into mailboxes and out of them: what
// package archive reads is filed, with folders, flags and dates, and what a
// mailbox holds is written.
//
// An import can be sent again after it broke off at any place: a message that
// the folder held when it began is not filed twice, and of two that are alike in
// the archive both are.
package transfer

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
	perAccount = 4
	atOnce     = 64
)

// Transfers imports and exports. It is safe for concurrent use.
type Transfers struct {
	Folders *folder.Store
	Blobs   *blob.Store
	Now     func() time.Time
	Log     *slog.Logger

	mu    sync.Mutex
	total int
	of    map[db.ID]int // by account
}

// open returns a fault.Denied while the domain of a mailbox is suspended.
func (t *Transfers) open(ctx context.Context, box db.ID) error {
	err := t.Blobs.DB.One(ctx, mailbox.DomainOpen(box), new(db.ID))
	if errors.Is(err, db.ErrNoRow) {
		return fault.New(fault.Denied, "domain_suspended", "The domain of this mailbox is suspended. Ask the operator of the service.")
	}
	return err
}

// begin takes the place of a transfer; end gives it back. Too many at once are
// a fault.Limited.
func (t *Transfers) begin(account db.ID) (end func(), err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.of == nil {
		t.of = map[db.ID]int{}
	}
	if t.total >= atOnce || t.of[account] >= perAccount {
		limited := fault.New(fault.Limited, "too_many_transfers", "There can be %d imports and exports of an account at once. Wait for one to end.", perAccount)
		limited.Retry = 10 * time.Second
		return nil, limited
	}
	t.total++
	t.of[account]++
	return sync.OnceFunc(func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.total--
		if t.of[account]--; t.of[account] == 0 {
			delete(t.of, account)
		}
	}), nil
}
