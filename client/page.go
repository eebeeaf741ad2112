// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"errors"
	"iter"
	"net/http"
	"net/url"
	"strconv"
)

// Page is a page of a list.
type Page[T any] struct {
	Data    []T  `json:"data"`
	HasMore bool `json:"has_more"` // whether the list continues in the requested direction
	// NextCursor is the value of Paging.After for the next page, or of Paging.Before if the page
	// was requested with that. On the last page it finds later what is new at that end. It is "" if
	// the list is empty and the request had no cursor.
	NextCursor string `json:"next_cursor"`
}

// Paging selects a page of a list. The zero value selects the first.
type Paging struct {
	Limit int   // 1 to 100; 50 if 0
	Order Order // Descending if ""
	// After selects the entries after this one in the order of the list: a cursor of a page of the
	// same list, filter and order, or the id of an entry.
	After  string
	Before string // the entries just before this one; not together with After
}

// Order is the order of a list by the time at which its entries were made.
type Order string

// Orders of lists.
const (
	Descending Order = "desc" // newest first
	Ascending  Order = "asc"  // oldest first
)

func (p Paging) into(q url.Values) url.Values {
	if q == nil {
		q = url.Values{}
	}
	if p.Limit != 0 {
		q.Set("limit", strconv.Itoa(p.Limit))
	}
	set(q, "order", string(p.Order))
	set(q, "after", p.After)
	set(q, "before", p.Before)
	return q
}

// set adds a parameter unless it is empty.
func set(q url.Values, name, value string) {
	if value != "" {
		q.Set(name, value)
	}
}

// setList adds a parameter once for each value.
func setList[T ~string](q url.Values, name string, values []T) {
	for _, v := range values {
		q.Add(name, string(v))
	}
}

// list requests one page.
func list[T any](ctx context.Context, c *Client, path string, filter url.Values, p Paging) (*Page[T], error) {
	return do[Page[T]](ctx, c, call{method: http.MethodGet, path: path, query: p.into(filter)})
}

const mostPerPage = 100

// walk iterates over all pages of a list. Each range over it starts again.
func walk[T any](next func(p Paging) (*Page[T], error)) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		var none T
		p := Paging{Limit: mostPerPage}
		for {
			page, err := next(p)
			if err == nil && page.HasMore && (page.NextCursor == "" || page.NextCursor == p.After) {
				err = errors.New("mailstead: a list goes on without a cursor")
			}
			if err != nil {
				yield(none, err)
				return
			}
			for _, item := range page.Data {
				if !yield(item, nil) {
					return
				}
			}
			if !page.HasMore {
				return
			}
			p.After = page.NextCursor
		}
	}
}
