// SPDX-License-Identifier: Apache-2.0

// Package admin has the operators' commands for the delivery queue: list, show, count, retry, hold,
// release and drop.
package admin

import (
	"context"
	"time"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/event"
	"github.com/mailstead/mailstead/internal/notify"
	"github.com/mailstead/mailstead/internal/queue"
	"github.com/mailstead/mailstead/internal/queue/dispatch"
)

// Queue gives operators the delivery queue: list, retry, hold, release and drop. It works on the rows alone, so it can run in a node's process, in a process of its own, or without any node.
// It uses conditional updates in short transactions. A running attempt either commits its outcome
// or finds that it is too late, never both.
type Queue struct {
	DB     *db.DB
	Events *event.Log
	// Wake notifies the nodes of a change. They also poll every few seconds.
	Wake func(notify.Key)
	Now  func() time.Time
	// Describe loads the event data of a message.
	Describe func(ctx context.Context, message db.ID) (queue.MessageInfo, error)
	// LoadViews loads the views of messages. The result lacks deleted messages.
	LoadViews func(ctx context.Context, messages []db.ID) (map[db.ID]MessageView, error)
}

// MessageView holds header fields of a message, for operators.
type MessageView struct {
	From        string // the From header field
	FromAddress string // the address in From
	Sender      string // MAIL FROM of a submission; "" for the null sender and for API mail
	Subject     string
	MessageID   string
	Size        int64
}

// Entry is a delivery that is not final, as an operator sees it.
type Entry struct {
	Message     db.ID
	N           int // index of the recipient
	Account     db.ID
	Recipient   string
	Destination string
	State       queue.State // Sending while it is leased
	Held        bool
	AcceptedAt  time.Time
	DueAt       time.Time // the next attempt, unless it is held
	ExpiresAt   time.Time // does not include the time on hold
	Attempts    int
	Code        int // code of the last reply
	Enhanced    string
	Reply       string
	Remote      string
	View        MessageView // zero if the message was deleted, or the view was not requested

	state queue.State // state in the row
	lease db.ID       // 0 for none
	hold  db.ID
}

// addViewsAndFilter adds the message views, and drops entries whose sender does not match the
// filter.
func (q *Queue) addViewsAndFilter(ctx context.Context, f *Filter, list []Entry) ([]Entry, error) {
	var ids []db.ID
	seen := map[db.ID]bool{}
	for i := range list {
		if id := list[i].Message; !seen[id] {
			seen[id] = true
			ids = append(ids, id)
		}
	}
	mails, err := q.LoadViews(ctx, ids)
	if err != nil {
		return nil, err
	}
	kept := list[:0]
	for _, e := range list {
		e.View = mails[e.Message]
		if f.Sender == "" || f.matchesSender(e.View) {
			kept = append(kept, e)
		}
	}
	return kept, nil
}

// Holds lists the active holds, the oldest first.
func (q *Queue) Holds(ctx context.Context) ([]queue.Hold, error) { return queue.ReadHolds(ctx, q.DB) }

func (q *Queue) wake(k notify.Kind) {
	if q.Wake != nil {
		q.Wake(notify.Key{Kind: k})
	}
}

func (e *Entry) key() dispatch.Key { return dispatch.Key{Message: e.Message, N: e.N} }
