// SPDX-License-Identifier: Apache-2.0

package api

import (
	"context"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/mailstead/mailstead/internal/account"
	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/event"
	"github.com/mailstead/mailstead/internal/fault"
)

type eventAnswer struct {
	ID        db.ID     `json:"id" doc:"The event's id; X-Event-ID of its webhook deliveries."`
	Type      string    `json:"type" enum:"inbound_email,delivery_status,bounce,complaint,domain_verified,mailbox_created,migration_complete,rate_limit_warning" doc:"The kind of event."`
	Timestamp time.Time `json:"timestamp" doc:"When it happened."`
	Version   int       `json:"version" doc:"Of the form of data." example:"1"`
	Account   db.ID     `json:"account_id" doc:"Your account."`
	Data      object    `json:"data" doc:"What happened; its members depend on the type."`
}

func showEvent(e event.Event) eventAnswer {
	return eventAnswer{ID: e.ID, Type: e.Type, Timestamp: stamp(e.Timestamp), Version: e.Version, Account: e.Account, Data: object(e.Data)}
}

type listEventsInput struct {
	page
	Types     []string `query:"type" doc:"Only these kinds, separated by commas." example:"bounce,complaint"`
	MessageID string   `query:"message" format:"uuid" doc:"Only events of the sent message with this id."`
}

// filter reads the query. Positions are the cursors of this list.
func (in *listEventsInput) filter() (event.Filter, error) {
	f := event.Filter{Kinds: in.Types, Before: math.MaxInt64, Limit: in.Limit + 1}
	var bad fault.Fields
	in.check(&bad)
	for _, kind := range in.Types {
		if !slices.Contains(event.Kinds[:], kind) {
			bad.Add("type", "unknown_type", "The kinds of event are %s.", strings.Join(event.Kinds[:], ", "))
			break
		}
	}
	position := func(name, text string) int64 {
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil || n <= 0 {
			badCursor(&bad, name)
		}
		return n
	}
	switch {
	case in.After != "":
		f.Before = position("after", in.After)
	case in.Before != "":
		f.After, f.Before = position("before", in.Before), 0
	}
	if in.MessageID != "" {
		var err error
		if f.Message, err = db.ParseID(in.MessageID); err != nil {
			bad.Add("message", "invalid_id", "This is not an id.")
		}
	}
	return f, bad.Err()
}

func (a *API) listEvents(ctx context.Context, p account.Principal, in *listEventsInput) (list[eventAnswer], error) {
	f, err := in.filter()
	if err != nil {
		return list[eventAnswer]{}, err
	}
	if p.Domain != "" && f.Message == 0 {
		return a.listOwnEvents(ctx, p, in, f)
	}
	if p.Domain != "" {
		if _, err := a.message(ctx, p, f.Message); err != nil {
			return list[eventAnswer]{}, fieldFault(err, "message", "There is no sent message with this id.")
		}
	}
	events, err := a.Events.List(ctx, p.Account, f)
	if err != nil {
		return list[eventAnswer]{}, err
	}
	more := len(events) > in.Limit
	events = events[:min(len(events), in.Limit)]
	if f.Before == 0 { // in order of position
		slices.Reverse(events)
	}
	return answer(in.page, events, more, showEvent, positionOf), nil
}

func positionOf(e event.Event) string { return strconv.FormatInt(e.Position, 10) }

// listOwnEvents lists events for a key of one domain.
func (a *API) listOwnEvents(ctx context.Context, p account.Principal, in *listEventsInput, f event.Filter) (list[eventAnswer], error) {
	only, ok, err := a.onlyDomain(ctx, p)
	if err != nil || !ok {
		return list[eventAnswer]{Data: []eventAnswer{}}, err
	}
	events, more, last, err := a.ownEvents(ctx, p, only, f)
	if err != nil {
		return list[eventAnswer]{}, err
	}
	if f.Before == 0 {
		slices.Reverse(events)
	}
	out := answer(in.page, events, more, showEvent, positionOf)
	if more {
		next := strconv.FormatInt(last, 10)
		out.NextCursor = &next
	}
	return out, nil
}
