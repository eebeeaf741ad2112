// SPDX-License-Identifier: Apache-2.0

package notify

import (
	"context"
	"log/slog"
	"time"

	"github.com/mailstead/mailstead/internal/db"
)

// forwardInterval is how long signals for other nodes are collected: each notification is a
// transaction, and a separate one for each message costs a tenth of filing it.
const forwardInterval = 20 * time.Millisecond

// NewHub returns a hub that forwards its signals to the other nodes on the database until ctx ends.
// On SQLite there are none.
func NewHub(ctx context.Context, d *db.DB, log *slog.Logger) *Hub {
	if d.Engine() == db.SQLite {
		return &Hub{}
	}
	return &Hub{send: func(keys []Key) {
		if err := d.Notify(ctx, encode(keys)...); err != nil && ctx.Err() == nil {
			log.Error("telling the other nodes failed", "error", err)
		}
		_ = Sleep(ctx, forwardInterval)
	}}
}

// Listen receives the signals of other nodes until ctx ends. It calls changed with each key before
// it wakes the key's subscribers, and missed when signals may have been lost.
func (h *Hub) Listen(ctx context.Context, d *db.DB, log *slog.Logger, changed func(Key), missed func()) error {
	return d.Listen(ctx, func(payload string) {
		keys, err := decode(payload)
		if err != nil {
			log.Error("reading what another node told failed", "error", err)
			return
		}
		for _, k := range keys {
			changed(k)
		}
		h.Receive(keys)
	}, func() {
		missed()
		h.WakeAll()
	})
}
