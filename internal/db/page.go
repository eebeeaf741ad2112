// SPDX-License-Identifier: Apache-2.0

package db

import (
	"context"
	"math"
	"slices"
	"strings"
)

// Page is a part of a list that is ordered newest first.
type Page struct {
	After  ID  // only what comes after (is older than) this one; 0 from the newest
	Before ID  // only what comes just before (is newer than) this one; 0 for no bound. After wins
	Limit  int // at most so many, 1 to MaxPage; 0 is DefaultPage
}

// Sizes of a page.
const (
	DefaultPage = 50
	MaxPage     = 100
)

func (p Page) limit() int {
	if p.Limit <= 0 {
		return DefaultPage
	}
	return min(p.Limit, MaxPage)
}

// PagedQuery is a query that reads pages of a list.
type PagedQuery struct{ older, newer *Query }

// Paged makes a list query from a text whose last condition is {page}: it
// becomes a bound on the column id, an order and a limit. $1 is what owns the
// list, $2 and $3 are the page's, further conditions use $4….
func Paged(text string) *PagedQuery {
	return &PagedQuery{
		older: SQL(strings.Replace(text, "{page}", "id < $2 ORDER BY id DESC LIMIT $3", 1)),
		newer: SQL(strings.Replace(text, "{page}", "id > $2 ORDER BY id LIMIT $3", 1)),
	}
}

// ReadPage reads a page of owner's list, newest first. more says whether the
// list goes on in the direction that was asked for.
func ReadPage[T any](ctx context.Context, r Reader, q *PagedQuery, p Page, scan func(Row) (T, error), owner ID, more ...any) (items []T, hasMore bool, err error) {
	limit := p.limit()
	query, from, back := q.older, ID(math.MaxInt64), false
	switch {
	case p.After > 0:
		from = p.After
	case p.Before > 0:
		query, from, back = q.newer, p.Before, true
	}
	items, err = All(ctx, r, query.With(append([]any{owner, from, limit + 1}, more...)...), scan)
	if len(items) > limit {
		items, hasMore = items[:limit], true
	}
	if back {
		slices.Reverse(items)
	}
	return items, hasMore, err
}
