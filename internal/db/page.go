// SPDX-License-Identifier: Apache-2.0

package db

import (
	"context"
	"math"
	"regexp"
	"slices"
	"strings"
)

// Page is a part of a list that is ordered newest first.
type Page struct {
	After  ID  // only items after (older than) this one; 0 starts at the newest
	Before ID  // only items just before (newer than) this one; 0 for no bound. After wins
	Limit  int // maximum number of items, 1 to MaxPageSize; 0 means DefaultPageSize
}

// Sizes of a page.
const (
	DefaultPageSize = 50
	MaxPageSize     = 100
)

func (p Page) limit() int {
	if p.Limit <= 0 {
		return DefaultPageSize
	}
	return min(p.Limit, MaxPageSize)
}

// PagedQuery is a query that reads pages of a list.
type PagedQuery struct{ older, newer *Query }

// PagedSQL makes a list query from a text whose last condition is {page}: it becomes a bound on
// the column id, an order and a limit. $1 is the list's owner, $2 and $3 are the page's bound
// and limit, further conditions use $4….
//
// {page account = $1, deleted_at = 0} also adds these conditions, and makes the database use an
// index on account, deleted_at and id. With {page} alone PostgreSQL may use the primary key
// instead, if it expects to find a page's rows soon among all. For a {clustered} table, write
// {clustered page webhook = $1}.
func PagedSQL(text string) *PagedQuery {
	older, newer := PagedSQLTexts(text)
	return &PagedQuery{older: SQL(older), newer: SQL(newer)}
}

var (
	pagePlaceholder = regexp.MustCompile(`\{(clustered )?page( [^}]*)?\}`)
	pageCondition   = regexp.MustCompile(`(\w+) = (\S+?)(?:,|$)`)
)

// PagedSQLTexts returns the texts of the two queries that PagedSQL makes.
func PagedSQLTexts(text string) (older, newer string) {
	mark := pagePlaceholder.FindStringSubmatch(text)
	if mark == nil {
		return text, text
	}
	page := func(beyond, within, order string) string {
		plain := "id" + beyond + "$2 ORDER BY id" + order + " LIMIT $3"
		var columns, values []string
		for _, by := range pageCondition.FindAllStringSubmatch(mark[2], -1) {
			columns, values = append(columns, by[1]), append(values, by[2])
		}
		if columns == nil {
			return strings.Replace(text, mark[0], plain, 1)
		}
		last := len(columns) - 1
		column, value, fixed := columns[last], values[last], ""
		for i := range last {
			fixed += columns[i] + " = " + values[i] + " AND "
		}
		// With an equality on the last column only the order of ids would remain, which other
		// indexes also provide. The columns before it have a fixed value: in a row comparison
		// PostgreSQL would read on to the end of the first column's value where another differs.
		by := fixed + "(" + column + ", id)" + beyond + "(" + value + ", $2) AND " + column + within + value +
			" ORDER BY " + column + order + ", id" + order + " LIMIT $3"
		if mark[1] == "" {
			// SQLite can't use an id that is the rowid in a row comparison. With plain
			// equalities it takes the index that has all columns.
			by = "\n{postgres}" + by + "\n{sqlite}" + fixed + column + " = " + value + " AND " + plain
		}
		return strings.Replace(text, mark[0], by, 1)
	}
	return page(" < ", " >= ", " DESC"), page(" > ", " <= ", "")
}

// ReadPage reads a page of owner's list, newest first. more are the arguments from $4 on.
// hasMore says whether the list continues in the requested direction.
func ReadPage[T any](ctx context.Context, r Reader, q *PagedQuery, p Page, scan func(Row) (T, error), owner ID, more ...any) (items []T, hasMore bool, err error) {
	limit := p.limit()
	query, from, back := q.start(p)
	items, err = All(ctx, r, query.With(append([]any{owner, from, limit + 1}, more...)...), scan)
	items, hasMore = trimPage(items, limit, back)
	return items, hasMore, err
}

// start returns the query that reads a page, the id that it starts after, and whether it reads
// towards the newest.
func (q *PagedQuery) start(p Page) (query *Query, from ID, back bool) {
	switch {
	case p.After > 0:
		return q.older, p.After, false
	case p.Before > 0:
		return q.newer, p.Before, true
	}
	return q.older, ID(math.MaxInt64), false
}

// ReadFilteredPage is ReadPage for the items that match. It reads in ever larger steps until
// the page is full, the list ends, or steps are done; 0 steps means no bound. all is false if
// that bound kept it from filling the page. The first step reads one page.
func ReadFilteredPage[T any](ctx context.Context, r Reader, q *PagedQuery, p Page, steps int, scan func(Row) (T, error), id func(T) ID,
	matches func(T) bool, owner ID, more ...any) (items []T, hasMore, all bool, err error) {
	limit := p.limit()
	query, from, back := q.start(p)
	for step, n := limit+1, 1; len(items) <= limit && !all && (steps == 0 || n <= steps); step, n = min(4*step, maxFilterRows), n+1 {
		rows, err := All(ctx, r, query.With(append([]any{owner, from, step}, more...)...), scan)
		if err != nil {
			return nil, false, false, err
		}
		for _, row := range rows {
			if matches(row) {
				items = append(items, row)
			}
		}
		if all = len(rows) < step; !all {
			from = id(rows[len(rows)-1])
		}
	}
	all = all || len(items) > limit
	items, hasMore = trimPage(items, limit, back)
	return items, hasMore, all, nil
}

// maxFilterRows is the maximum number of rows that ReadFilteredPage reads at once.
const maxFilterRows = 2000

// Paginate returns a page of a list in memory that is newest first, as ReadPage does.
func Paginate[T any](list []T, p Page, id func(T) ID) (items []T, hasMore bool) {
	back := p.After <= 0 && p.Before > 0
	if back {
		slices.Reverse(list)
	}
	for _, item := range list {
		switch {
		case p.After > 0 && id(item) >= p.After, back && id(item) <= p.Before:
		default:
			items = append(items, item)
		}
	}
	return trimPage(items, p.limit(), back)
}

// trimPage makes a page of the items read for it, which may be more than limit.
func trimPage[T any](items []T, limit int, back bool) (page []T, hasMore bool) {
	if len(items) > limit {
		items, hasMore = items[:limit], true
	}
	if back {
		slices.Reverse(items)
	}
	return items, hasMore
}
