// SPDX-License-Identifier: Apache-2.0

package api

import (
	"context"
	"encoding/json"

	"github.com/mailstead/mailstead/internal/account"
	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/event"
)

// maxEvents is how many events are looked at for one page of a key of one
// domain. Beyond them the page is shorter, and tells where to go on.
const maxEvents = 2000

// ownEvents lists the events of one domain: of its messages, its mailboxes and
// itself. last is the position of the last one that was looked at.
func (a *API) ownEvents(ctx context.Context, p account.Principal, only db.ID, f event.Filter) (own []event.Event, more bool, last int64, err error) {
	want := f.Limit - 1
	f.Limit = db.MaxPage
	for looked := 0; looked < maxEvents; looked += f.Limit {
		events, err := a.Events.List(ctx, p.Account, f)
		if err != nil {
			return nil, false, 0, err
		}
		mine, err := a.ofDomain(ctx, p, only, events)
		if err != nil {
			return nil, false, 0, err
		}
		for _, e := range mine {
			if len(own) == want {
				return own, true, last, nil
			}
			own, last = append(own, e), e.Position
		}
		if len(events) < f.Limit {
			return own, false, last, nil
		}
		last = events[len(events)-1].Position
		if f.Before > 0 {
			f.Before = last
		} else {
			f.After = last
		}
	}
	return own, true, last, nil
}

// ofDomain keeps the events of a domain. Those of sent messages don't say which
// it is; those of the account as a whole belong to none.
func (a *API) ofDomain(ctx context.Context, p account.Principal, only db.ID, events []event.Event) ([]event.Event, error) {
	type about struct{ message, domain db.ID }
	abouts := make([]about, len(events))
	var sent []db.ID
	for i, e := range events {
		var data struct {
			ID     string `json:"id"`
			Domain string `json:"domain_id"`
		}
		if json.Unmarshal(e.Data, &data) != nil {
			continue
		}
		if id, err := db.ParseID(data.Domain); err == nil {
			abouts[i].domain = id
		} else if id, err := db.ParseID(data.ID); err == nil {
			abouts[i].message = id
			sent = append(sent, id)
		}
	}
	domains, err := a.Outbox.DomainsOf(ctx, p.Account, sent)
	if err != nil {
		return nil, err
	}
	var own []event.Event
	for i, e := range events {
		if abouts[i].domain == only || abouts[i].domain == 0 && domains[abouts[i].message] == only {
			own = append(own, e)
		}
	}
	return own, nil
}
