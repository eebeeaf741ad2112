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

// Admin is what those who run the service do with the queue: they look, and
// retry, hold, release or drop. It works on the rows alone, so it may stand
// beside the nodes, in a process of its own, or without any. All it does is by
// conditional updates in short transactions: an attempt that is under way
// either has its outcome or finds that it came too late, never both.
type Admin struct {
	DB     *db.DB
	Events *event.Log
	// Wake tells the nodes what changed; they also look by themselves every
	// few seconds.
	Wake func(notify.Key)
	Now  func() time.Time
	// Describe loads what events say about a message.
	Describe func(ctx context.Context, message db.ID) (MessageInfo, error)
	// LoadViews loads the heads of messages; those that are gone are missing.
	LoadViews func(ctx context.Context, messages []db.ID) (map[db.ID]MessageView, error)
}

// MessageView is the head of a message, for people who look at the queue.
type MessageView struct {
	From        string // of its header
	FromAddress string // the address in that
	Sender      string // MAIL FROM of a submission; "" for the null sender and for API mail
	Subject     string
	MessageID   string
	Size        int64
}

// Filter chooses deliveries that are not final; all of what is set must fit.
type Filter struct {
	Message     db.ID
	Destination string // a domain
	Account     db.ID
	State       State  // Scheduled, Queued, Deferred, or Sending for what a node has in hand
	Sender      string // an address, or a domain with or without "@", of From or MAIL FROM
	// OlderThan is since when a delivery must have been accepted at least.
	OlderThan time.Duration
	Held      *bool // those that are held, or those that are not
}

// Check completes a filter, or returns a fault.Invalid for one that can't be
// meant.
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
	N           int // of the recipient
	Account     db.ID
	Recipient   string
	Destination string
	State       State // Sending while a node has it in hand
	Held        bool
	AcceptedAt  time.Time
	DueAt       time.Time // the next try, when it is not held
	ExpiresAt   time.Time // without the time that it is held
	Attempts    int
	Code        int // of the last reply
	Enhanced    string
	Reply       string
	Remote      string
	View        MessageView // zero if the message is gone, or was not asked for

	state State // as in the row
	lease db.ID // 0 for none
	hold  db.ID
}

// matches reports whether an entry is what the filter chooses, but for the sender.
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

// matchesSender reports whether a letter is from the sender that the filter chooses.
func (f *Filter) matchesSender(l MessageView) bool {
	for _, text := range []string{l.FromAddress, l.Sender} {
		if a, err := address.Parse(text); err == nil && (a.Key() == f.Sender || a.Domain == f.Sender) {
			return true
		}
	}
	return false
}

// addViews adds the heads of the messages, and leaves out what is not from
// the sender that is chosen.
func (o *Admin) addViews(ctx context.Context, f *Filter, list []Entry) ([]Entry, error) {
	var ids []db.ID
	seen := map[db.ID]bool{}
	for i := range list {
		if id := list[i].Message; !seen[id] {
			seen[id] = true
			ids = append(ids, id)
		}
	}
	letters, err := o.LoadViews(ctx, ids)
	if err != nil {
		return nil, err
	}
	kept := list[:0]
	for _, e := range list {
		e.View = letters[e.Message]
		if f.Sender == "" || f.matchesSender(e.View) {
			kept = append(kept, e)
		}
	}
	return kept, nil
}

// Holds lists the standing holds, the oldest first.
func (o *Admin) Holds(ctx context.Context) ([]Hold, error) { return readHolds(ctx, o.DB) }

func (o *Admin) wake(k notify.Kind) {
	if o.Wake != nil {
		o.Wake(notify.Key{Kind: k})
	}
}
