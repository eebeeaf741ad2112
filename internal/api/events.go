// SPDX-License-Identifier: Apache-2.0

package api

import (
	"context"
	"math"
	"slices"
	"strconv"

	"github.com/mailstead/mailstead/internal/account"
	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/event"
	"github.com/mailstead/mailstead/internal/fault"
)

type listEventsInput struct {
	Limit     int      `query:"limit" minimum:"1" maximum:"100" default:"50" doc:"How many at most."`
	After     string   `query:"after" doc:"Go on after this cursor, towards older events."`
	Types     []string `query:"type" doc:"Only these kinds, separated by commas."`
	MessageID string   `query:"message" doc:"Only events of the sent message with this id."`
}

func (a *API) listEvents(ctx context.Context, p account.Principal, in *listEventsInput) (*list[event.Event], error) {
	f := event.Filter{Kinds: in.Types, Before: math.MaxInt64, Limit: in.Limit + 1}
	var bad fault.Fields
	for _, kind := range in.Types {
		if !slices.Contains(event.Kinds[:], kind) {
			bad.Add("type", "unknown_type", "The kinds of event are %v.", event.Kinds)
		}
	}
	var err error
	if in.After != "" {
		if f.Before, err = strconv.ParseInt(in.After, 10, 64); err != nil || f.Before <= 0 {
			bad.Add("after", "invalid_cursor", "This is not a next_cursor of this list.")
		}
	}
	if in.MessageID != "" {
		if f.Message, err = db.ParseID(in.MessageID); err != nil {
			bad.Add("message", "invalid_id", "This is not an id.")
		}
	}
	if err := bad.Err(); err != nil {
		return nil, err
	}
	events, err := a.Events.List(ctx, p.Account, f)
	if err != nil {
		return nil, err
	}
	out := &list[event.Event]{}
	if len(events) > in.Limit {
		events, out.Body.HasMore = events[:in.Limit], true
		next := strconv.FormatInt(events[in.Limit-1].Position, 10)
		out.Body.NextCursor = &next
	}
	out.Body.Data = append([]event.Event{}, events...)
	return out, nil
}
