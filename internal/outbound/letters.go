// SPDX-License-Identifier: Apache-2.0

package outbound

import (
	"context"
	"slices"

	"github.com/mailstead/mailstead/internal/address"
	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/queue"
)

// Letters loads the heads of messages of any account, for operators of the
// queue; those that are gone are missing.
func (o *Outbox) Letters(ctx context.Context, messages []db.ID) (map[db.ID]queue.Letter, error) {
	all := make(map[db.ID]queue.Letter, len(messages))
	for some := range slices.Chunk(messages, findStep) {
		rows, err := o.loadSome(ctx, some)
		if err != nil {
			return nil, err
		}
		for _, r := range rows {
			l := queue.Letter{From: r.from, Sender: r.sender, Subject: r.subject, MessageID: r.messageID, Size: r.size}
			if from, err := address.ParseNamed(r.from); err == nil {
				l.Address = from.Address.String()
			}
			all[r.id] = l
		}
	}
	return all, nil
}
