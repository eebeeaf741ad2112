// SPDX-License-Identifier: Apache-2.0

package outbound

import (
	"context"
	"slices"

	"github.com/mailstead/mailstead/internal/address"
	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/outbound/index"
	"github.com/mailstead/mailstead/internal/queue/admin"
)

// MessageViews loads the main fields of messages of any account, for operators of the queue. The
// map has no entry for deleted messages.
func (o *Messages) MessageViews(ctx context.Context, messages []db.ID) (map[db.ID]admin.MessageView, error) {
	all := make(map[db.ID]admin.MessageView, len(messages))
	for some := range slices.Chunk(messages, index.BatchSize) {
		rows, err := o.loadRows(ctx, some)
		if err != nil {
			return nil, err
		}
		for _, r := range rows {
			l := admin.MessageView{From: r.from, Sender: r.sender, Subject: r.subject, MessageID: r.messageID, Size: r.size}
			if from, err := address.ParseNameAddr(r.from); err == nil {
				l.FromAddress = from.Address.String()
			}
			all[r.id] = l
		}
	}
	return all, nil
}
