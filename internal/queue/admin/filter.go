// SPDX-License-Identifier: Apache-2.0

package admin

import (
	"strings"
	"time"

	"github.com/mailstead/mailstead/internal/address"
	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/queue"
)

// Filter selects deliveries that are not final. A delivery must match all fields that are set.
type Filter struct {
	Message     db.ID
	Destination string // a domain
	Account     db.ID
	State       queue.State // Scheduled, Queued, Deferred, or Sending for leased deliveries
	Sender      string      // an address, or a domain with or without "@", of From or MAIL FROM
	// OlderThan is the minimum time since the delivery was accepted.
	OlderThan time.Duration
	Held      *bool // only held deliveries, or only others
}

// Normalize normalizes the filter. It returns a fault.Invalid if a field is invalid.
func (f *Filter) Normalize() error {
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
	case "", queue.Scheduled, queue.Queued, queue.Deferred, queue.Sending:
	default:
		bad.Add("state", "unknown_state", "The states are scheduled, queued, deferred and sending.")
	}
	if f.OlderThan < 0 {
		bad.Add("older_than", "out_of_range", "Give a length of time that has passed.")
	}
	return bad.Err()
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
