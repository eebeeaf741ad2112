// SPDX-License-Identifier: Apache-2.0

package api

import (
	"time"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/fault"
)

// listResponse is a page of a list, newest first.
type listResponse[T any] struct {
	Data       []T     `json:"data" doc:"The page, newest first."`
	HasMore    bool    `json:"has_more" doc:"Whether the list goes on, in the direction that was asked for." example:"false"`
	NextCursor *string `json:"next_cursor" doc:"Give it as after to go on (as before, if the page was asked for with before); null at the end."`
}

// pageParams are the paging parameters of every list.
type pageParams struct {
	Limit  int    `query:"limit" minimum:"1" maximum:"100" default:"50" doc:"How many at most."`
	After  string `query:"after" doc:"Only what comes after this cursor: what is older."`
	Before string `query:"before" doc:"Only what comes just before this cursor: what is newer."`
}

// dbPage converts the parameters of a page whose cursors are ids.
func (p pageParams) dbPage() (db.Page, error) {
	out := db.Page{Limit: p.Limit}
	var bad fault.FieldErrors
	p.checkCursors(&bad)
	for _, c := range []struct {
		name, text string
		into       *db.ID
	}{{"after", p.After, &out.After}, {"before", p.Before, &out.Before}} {
		if c.text == "" {
			continue
		}
		var err error
		if *c.into, err = db.ParseID(c.text); err != nil {
			addCursorFault(&bad, c.name)
		}
	}
	return out, bad.Err()
}

func (p pageParams) checkCursors(bad *fault.FieldErrors) {
	if p.After != "" && p.Before != "" {
		bad.Add("before", "conflicting_cursors", "Give after or before, not both.")
	}
}

// parseTime parses a time in a query; "" is the zero time.
func parseTime(bad *fault.FieldErrors, field, text string) (t time.Time) {
	if text == "" {
		return t
	}
	t, err := time.Parse(time.RFC3339, text)
	if err != nil {
		bad.Add(field, "invalid_time", "Give a time such as 2026-01-31T09:00:00Z (RFC 3339).")
	} else if t.IsZero() { // the zero time would count as absent
		t = t.Add(1)
	}
	return t
}

func addCursorFault(bad *fault.FieldErrors, field string) {
	bad.Add(field, "invalid_cursor", "This is not a cursor of this list.")
}

// newListResponse converts a page of items, newest first, to a response.
func newListResponse[S, T any](p pageParams, items []S, more bool, show func(S) T, cursor func(S) string) listResponse[T] {
	l := listResponse[T]{Data: make([]T, len(items)), HasMore: more}
	for i, item := range items {
		l.Data[i] = show(item)
	}
	if more && len(items) > 0 {
		end := items[len(items)-1]
		if p.Before != "" {
			end = items[0]
		}
		next := cursor(end)
		l.NextCursor = &next
	}
	return l
}
