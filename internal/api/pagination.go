// SPDX-License-Identifier: Apache-2.0

package api

import (
	"slices"
	"time"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/fault"
)

// listResponse is a page of a list.
type listResponse[T any] struct {
	Data       []T     `json:"data" doc:"The page, in the order of the list."`
	HasMore    bool    `json:"has_more" doc:"Whether the list goes on, in the direction that was asked for." example:"false"`
	NextCursor *string `json:"next_cursor" doc:"Give it as after to go on (as before, if the page was asked for with before), also later, for what is new at that end; null if the list is empty and no cursor was given."`
}

// Orders of a list.
const (
	ascending  = "asc"
	descending = "desc"
)

// pageParams are the paging parameters of every list.
type pageParams struct {
	Limit  int    `query:"limit" minimum:"1" maximum:"100" default:"50" doc:"How many at most."`
	Order  string `query:"order" enum:"asc,desc" default:"desc" doc:"desc: the newest first; asc: the oldest first."`
	After  string `query:"after" doc:"Only what comes after this in the order of the list: a cursor of the same list, filter and order, or the id of an entry."`
	Before string `query:"before" doc:"Only what comes just before this in the order of the list: a cursor of the same list, filter and order, or the id of an entry."`

	key listKey
}

// setListKey is called with the key of the list before an operation runs.
func (p *pageParams) setListKey(k listKey) { p.key = k }

// dbPage converts the parameters of a page whose positions are ids. exists reports whether the list
// has an entry with an id.
func (p *pageParams) dbPage(exists func(db.ID) (bool, error)) (db.Page, error) {
	return p.dbPageOf(db.ParseID, exists)
}

// dbPageOf is dbPage for entries whose ids have another form.
func (p *pageParams) dbPageOf(parse func(string) (db.ID, error), exists func(db.ID) (bool, error)) (db.Page, error) {
	out := db.Page{Limit: p.Limit}
	older, newer := &out.After, &out.Before
	if p.Order == ascending {
		older, newer = newer, older
	}
	err := p.parseCursors(func(field, text string) (int64, error) {
		id, err := parse(text)
		if err != nil {
			return 0, cursorFault(field)
		}
		if ok, err := exists(id); err != nil || !ok {
			return 0, orFault(err, cursorFault(field))
		}
		return int64(id), nil
	}, func(after, before int64) { *older, *newer = db.ID(after), db.ID(before) })
	if p.Order == ascending && out.After == 0 && out.Before == 0 {
		out.Before = 1 // below all ids
	}
	return out, err
}

// parseCursors converts the cursors of a page to positions. parse converts the id of an entry.
func (p *pageParams) parseCursors(parse func(field, text string) (int64, error), set func(after, before int64)) error {
	var bad fault.FieldErrors
	if p.After != "" && p.Before != "" {
		bad.Add("before", "conflicting_cursors", "Give after or before, not both.")
	}
	var at [2]int64
	for i, c := range [2]struct{ field, text string }{{"after", p.After}, {"before", p.Before}} {
		if c.text == "" {
			continue
		}
		key, position, ok := parseCursor(c.text)
		var err error
		switch {
		case !ok:
			position, err = parse(c.field, c.text)
		case key != p.key:
			bad.Add(c.field, "invalid_cursor", "This is the cursor of another list, or of this list with another filter or order. Give it with the parameters that it was made for, or begin without one.")
			continue
		}
		if err := mergeFaults(&bad, err); err != nil {
			return err
		}
		at[i] = position
	}
	set(at[0], at[1])
	return bad.Err()
}

// cursor returns the cursor of a position, nil for no position.
func (p *pageParams) cursor(position int64) *string {
	if position <= 0 {
		return nil
	}
	text := formatCursor(p.key, position)
	return &text
}

// cursorFault returns the fault of a cursor that is none of the list, nor an id of it.
func cursorFault(field string) error {
	var bad fault.FieldErrors
	addCursorFault(&bad, field)
	return bad.Err()
}

func addCursorFault(bad *fault.FieldErrors, field string) {
	bad.Add(field, "invalid_cursor", "This is neither a cursor of this list nor the id of an entry. Give next_cursor of a page of this list.")
}

// orFault returns err, or the fault if it is nil.
func orFault(err, fault error) error {
	if err != nil {
		return err
	}
	return fault
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

// pageReader reads a page of a list, newest first.
type pageReader[S any] func(db.Page) (items []S, more bool, err error)

// exists returns a function that reports whether the list has an entry with an id.
func (read pageReader[S]) exists(id func(S) db.ID) func(db.ID) (bool, error) {
	return func(of db.ID) (bool, error) {
		items, _, err := read(db.Page{After: of + 1, Limit: 1})
		return len(items) == 1 && id(items[0]) == of, err
	}
}

// listPage responds with a page of a list.
func listPage[S, T any](p *pageParams, read pageReader[S], show func(S) T, id func(S) db.ID) (listResponse[T], error) {
	at, err := p.dbPage(read.exists(id))
	if err != nil {
		return listResponse[T]{}, err
	}
	return listPageAt(p, at, read, show, id)
}

// listPageAt is listPage for parameters that have been converted.
func listPageAt[S, T any](p *pageParams, at db.Page, read pageReader[S], show func(S) T, id func(S) db.ID) (listResponse[T], error) {
	items, more, err := read(at)
	if err != nil {
		return listResponse[T]{}, err
	}
	var next db.ID
	if n := len(items); n > 0 {
		next = id(items[n-1])
		if at.After == 0 && at.Before != 0 { // towards the newest
			next = id(items[0])
		}
	}
	return newListResponse(p, at, items, more, next, show), nil
}

// newListResponse converts a page of items, newest first, to a response. The list goes on at next;
// 0: where the page began.
func newListResponse[S, T any](p *pageParams, at db.Page, items []S, more bool, next db.ID, show func(S) T) listResponse[T] {
	l := listResponse[T]{Data: make([]T, len(items)), HasMore: more}
	for i, item := range items {
		l.Data[i] = show(item)
	}
	if p.Order == ascending {
		slices.Reverse(l.Data)
	}
	if next == 0 && (p.After != "" || p.Before != "") {
		next = max(at.After, at.Before)
	}
	l.NextCursor = p.cursor(int64(next))
	return l
}

// wholeList returns a list that is never longer than a page and takes no cursors.
func wholeList[S, T any](items []S, show func(S) T) listResponse[T] {
	return newListResponse(&pageParams{}, db.Page{}, items, false, 0, show)
}
