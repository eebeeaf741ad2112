// SPDX-License-Identifier: Apache-2.0

package queue

import (
	"context"
	"errors"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/event"
)

// updatedDelivery is a delivery after a conditional update.
type updatedDelivery struct {
	StatusChange
	destination string
}

// updateDelivery runs a conditional update. It returns nil if no row matched.
func updateDelivery(ctx context.Context, tx *db.Tx, s db.Statement) (*updatedDelivery, error) {
	var c updatedDelivery
	err := tx.One(ctx, s, &c.Account, &c.Recipient, &c.destination, &c.Attempts, &c.Sequence,
		&c.Code, &c.Enhanced, &c.Reply, &c.Remote)
	if errors.Is(err, db.ErrNoRow) {
		return nil, nil
	}
	return &c, err
}

// changeState runs a conditional update and records one delivery_status event.
func changeState(ctx context.Context, tx *db.Tx, events *event.Log, about MessageInfo, s db.Statement, message db.ID, state State) (*updatedDelivery, error) {
	c, err := updateDelivery(ctx, tx, s)
	if err != nil || c == nil {
		return nil, err
	}
	c.MessageInfo, c.ID, c.Status = about, message, state
	c.Sequence--
	return c, recordEvents(ctx, tx, events, c.Events(nil))
}

func recordEvents(ctx context.Context, tx *db.Tx, log *event.Log, events []event.RecordParams) error {
	for _, e := range events {
		if err := log.Record(ctx, tx, e); err != nil {
			return err
		}
	}
	return nil
}
