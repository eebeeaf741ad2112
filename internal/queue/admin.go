// SPDX-License-Identifier: Apache-2.0

package queue

import (
	"context"
	"strings"
	"time"

	"github.com/mailstead/mailstead/internal/address"
	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/event"
	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/notify"
)

// Admin provides the operators' queue commands: list, retry, hold, release and drop. It works on
// the rows alone, so it can run in a node's process, in a process of its own, or without any node.
// It uses conditional updates in short transactions. A running attempt either commits its outcome
// or finds that it is too late, never both.
type Admin struct {
	DB     *db.DB
	Events *event.Log
	// Wake notifies the nodes of a change. They also poll every few seconds.
	Wake func(notify.Key)
	Now  func() time.Time
	// Describe loads the event data of a message.
	Describe func(ctx context.Context, message db.ID) (MessageInfo, error)
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

// Filter selects deliveries that are not final. A delivery must match all fields that are set.
type Filter struct {
	Message     db.ID
	Destination string // a domain
	Account     db.ID
	State       State  // Scheduled, Queued, Deferred, or Sending for leased deliveries
	Sender      string // an address, or a domain with or without "@", of From or MAIL FROM
	// OlderThan is the minimum time since the delivery was accepted.
	OlderThan time.Duration
	Held      *bool // only held deliveries, or only others
}

// Check normalizes the filter. It returns a fault.Invalid if a field is invalid.
func (f *Filter) Check() error {
	var bad fault.FieldErrors
	if f.Destination != "" {
		name, err := address.ParseMailDomain(f.Destination)
		if err != nil {
			bad.Add("destination", "invalid_domain", "This is not a domain name.")
		}
		f.Destination = name
	}
	if f.Sender != "" {
		if name, err := address.ParseMailDomain(strings.TrimPrefix(f.Sender, "@")); err == nil {
			f.Sender = name
		} else if a, err := address.Parse(f.Sender); err == nil {
			f.Sender = a.Key()
		} else {
			bad.Add("sender", "invalid_sender", "Give an address, or a domain.")
		}
	}
	switch f.State {
	case "", Scheduled, Queued, Deferred, Sending:
	default:
		bad.Add("state", "unknown_state", "The states are scheduled, queued, deferred and sending.")
	}
	if f.OlderThan < 0 {
		bad.Add("older_than", "out_of_range", "Give a length of time that has passed.")
	}
	return bad.Err()
}

// Entry is a delivery that is not final, as an operator sees it.
type Entry struct {
	Message     db.ID
	N           int // index of the recipient
	Account     db.ID
	Recipient   string
	Destination string
	State       State // Sending while it is leased
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

	state State // state in the row
	lease db.ID // 0 for none
	hold  db.ID
}

// matches reports whether an entry matches the filter, except for the sender.
func (f *Filter) matches(e *Entry, now time.Time) bool {
	switch {
	case f.Message != 0 && e.Message != f.Message,
		f.Destination != "" && e.Destination != f.Destination,
		f.Account != 0 && e.Account != f.Account,
		f.State != "" && e.State != f.State,
		f.OlderThan > 0 && now.Sub(e.AcceptedAt) < f.OlderThan,
		f.Held != nil && e.Held != *f.Held:
		return false
	}
	return true
}

// matchesSender reports whether the message's sender matches the filter.
func (f *Filter) matchesSender(l MessageView) bool {
	for _, text := range []string{l.FromAddress, l.Sender} {
		if a, err := address.Parse(text); err == nil && (a.Key() == f.Sender || a.Domain == f.Sender) {
			return true
		}
	}
	return false
}

// addViews adds the message views, and drops entries whose sender does not match the filter.
func (o *Admin) addViews(ctx context.Context, f *Filter, list []Entry) ([]Entry, error) {
	var ids []db.ID
	seen := map[db.ID]bool{}
	for i := range list {
		if id := list[i].Message; !seen[id] {
			seen[id] = true
			ids = append(ids, id)
		}
	}
	mails, err := o.LoadViews(ctx, ids)
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
func (o *Admin) Holds(ctx context.Context) ([]Hold, error) { return readHolds(ctx, o.DB) }

func (o *Admin) wake(k notify.Kind) {
	if o.Wake != nil {
		o.Wake(notify.Key{Kind: k})
	}
}
