// SPDX-License-Identifier: Apache-2.0

package admin

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"math"
	"strings"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/queue"
)

// Three indexes together list all open deliveries: waiting, held and leased ones.
const (
	indexWaiting = iota
	indexHeld
	indexLeased
	indexEnd
)

// listCursor is the position of a walk through the indexes.
type listCursor struct {
	Pass        int    `json:"l,omitempty"` // pass of a command, which may walk an index twice
	Index       int    `json:"p"`
	Destination string `json:"d,omitempty"`
	Due         int64  `json:"t,omitempty"`
	Lease       db.ID  `json:"o,omitempty"`
	Message     int64  `json:"m,omitempty"`
	N           int    `json:"n,omitempty"`
}

func (s listCursor) nextIndex() listCursor {
	return listCursor{Index: s.Index + 1, Due: math.MinInt64}
}

// startCursor is the start of a walk. Waiting rows may be due at any time.
var startCursor = listCursor{Due: math.MinInt64}

// String encodes the cursor.
func (s listCursor) String() string {
	text, _ := json.Marshal(s) // can't fail
	return base64.RawURLEncoding.EncodeToString(text)
}

func parseCursor(cursor string) (listCursor, error) {
	if cursor == "" {
		return startCursor, nil
	}
	var s listCursor
	text, err := base64.RawURLEncoding.DecodeString(cursor)
	if err == nil {
		err = json.Unmarshal(text, &s)
	}
	if err != nil || s.Index < 0 || s.Index > indexEnd || strings.ContainsRune(s.Destination, 0) {
		return s, errCursor
	}
	return s, nil
}

var errCursor = func() error {
	var bad fault.FieldErrors
	addCursorError(&bad)
	return bad.Err()
}()

func addCursorError(bad *fault.FieldErrors) {
	bad.Add("after", "invalid_cursor", "This is not a cursor of this list.")
}

// entryColumns are the columns that scanEntry reads.
const entryColumns = `message, n, account, recipient, destination, state, due_at, expires_at, COALESCE(lease, 0), hold,
			attempts, code, enhanced, reply, remote_host`

var (
	waitingQuery = db.SQL(`SELECT ` + entryColumns + `
		FROM delivery WHERE lease IS NULL AND state IN ('scheduled', 'queued', 'deferred')
			AND (destination, due_at, message, n) > ($1, $2, $3, $4) ORDER BY destination, due_at, message, n LIMIT $5`)
	waitingByDestinationQuery = db.SQL(`SELECT ` + entryColumns + `
		FROM delivery WHERE lease IS NULL AND state IN ('scheduled', 'queued', 'deferred')
			AND (destination, due_at, message, n) > ($1, $2, $3, $4) AND destination <= $1 ORDER BY destination, due_at, message, n LIMIT $5`)
	waitingByAccountQuery = db.SQL(`SELECT ` + entryColumns + `
		FROM delivery WHERE lease IS NULL AND state IN ('scheduled', 'queued', 'deferred')
			AND (account, message, n) > ($1, $2, $3) AND account <= $1 ORDER BY account, message, n LIMIT $4`)
	heldQuery = db.SQL(`SELECT ` + entryColumns + `
		FROM delivery
		{sqlite}INDEXED BY delivery_held
		WHERE lease = 0 AND state IN ('scheduled', 'queued', 'deferred') AND (destination, message, n) > ($1, $2, $3) ORDER BY destination, message, n LIMIT $4`)
	heldByDestinationQuery = db.SQL(`SELECT ` + entryColumns + `
		FROM delivery
		{sqlite}INDEXED BY delivery_held
		WHERE lease = 0 AND state IN ('scheduled', 'queued', 'deferred') AND destination = $1 AND (message, n) > ($2, $3) ORDER BY message, n LIMIT $4`)
	heldByAccountQuery = db.SQL(`SELECT ` + entryColumns + `
		FROM delivery WHERE lease = 0 AND state IN ('scheduled', 'queued', 'deferred')
			AND account = $1 AND (message, n) > ($2, $3) ORDER BY message, n LIMIT $4`)
	leasedQuery = db.SQL(`SELECT ` + entryColumns + `
		FROM delivery WHERE lease IS NOT NULL AND (lease, message, n) > ($1, $2, $3) ORDER BY lease, message, n LIMIT $4`)
	openByMessageQuery = db.SQL(`SELECT ` + entryColumns + `
		FROM delivery WHERE message = $1 AND n > $2 AND state IN ('scheduled', 'queued', 'deferred') ORDER BY n LIMIT $3`)
)

func scanEntry(r db.Row) (e Entry, err error) {
	var due, expires int64
	err = r.Scan(&e.Message, &e.N, &e.Account, &e.Recipient, &e.Destination, (*string)(&e.state), &due, &expires, &e.lease, &e.hold,
		&e.Attempts, &e.Code, &e.Enhanced, &e.Reply, &e.Remote)
	e.State, e.Held, e.AcceptedAt, e.DueAt, e.ExpiresAt = e.state, e.hold != 0, e.Message.Time(), db.Time(due), db.Time(expires)
	if e.lease > 0 && e.state != queue.Scheduled {
		e.State = queue.Sending
	}
	return e, err
}

// readPage reads up to limit rows from a cursor on, and returns the next cursor. The walk has ended
// when its Index is indexEnd. readPage returns only the rows that match the filter, so the list may
// be empty although the walk continues.
func (q *Queue) readPage(ctx context.Context, f *Filter, s listCursor, limit int) (list []Entry, next listCursor, err error) {
	if f.Message != 0 {
		if s.Message == 0 {
			s.N = -1
		}
	} else if f.excludesIndex(s.Index) {
		return nil, s.nextIndex(), nil
	}
	all, err := db.All(ctx, q.DB, f.statement(s, limit), scanEntry)
	if err != nil {
		return nil, s, err
	}
	switch {
	case f.Message != 0 && len(all) < limit:
		next = listCursor{Index: indexEnd}
	case len(all) < limit:
		next = s.nextIndex()
	default:
		last := all[limit-1]
		next = listCursor{Index: s.Index, Destination: last.Destination, Due: db.Micros(last.DueAt), Lease: last.lease, Message: int64(last.Message), N: last.N}
	}
	now := q.Now()
	list = all[:0]
	for _, e := range all {
		if f.matches(&e, now) {
			list = append(list, e)
		}
	}
	return list, next, nil
}

// excludesIndex reports whether no delivery of an index can match the filter.
func (f *Filter) excludesIndex(place int) bool {
	switch place {
	case indexWaiting:
		return f.State == queue.Sending || f.Held != nil && *f.Held
	case indexHeld:
		return f.State == queue.Sending || f.Held != nil && !*f.Held
	}
	return f.State == queue.Queued || f.State == queue.Deferred
}

func (f *Filter) statement(s listCursor, limit int) db.Statement {
	switch {
	case f.Message != 0:
		return openByMessageQuery.With(f.Message, s.N, limit)
	case s.Index == indexLeased:
		if s.Lease == 0 { // skips held deliveries, whose lease is 0
			s.Message = math.MaxInt64
		}
		return leasedQuery.With(s.Lease, s.Message, s.N, limit)
	case s.Index == indexHeld && f.Account != 0:
		return heldByAccountQuery.With(f.Account, s.Message, s.N, limit)
	case s.Index == indexHeld && f.Destination != "":
		return heldByDestinationQuery.With(f.Destination, s.Message, s.N, limit)
	case s.Index == indexHeld:
		return heldQuery.With(s.Destination, s.Message, s.N, limit)
	case f.Account != 0:
		return waitingByAccountQuery.With(f.Account, s.Message, s.N, limit)
	case f.Destination != "":
		return waitingByDestinationQuery.With(f.Destination, s.Due, s.Message, s.N, limit)
	}
	return waitingQuery.With(s.Destination, s.Due, s.Message, s.N, limit)
}

const (
	// pageRows is the number of rows read at once.
	pageRows = 500
	// maxListRows is the maximum of rows read for one page of a list, so that a selective filter
	// still answers in time.
	maxListRows = 20_000
)

// List returns at most limit deliveries that are not final: waiting ones by destination and time of
// the next attempt, then held ones, then leased ones. next is the cursor of the next page, "" at
// the end. A page may be short although more follow.
func (q *Queue) List(ctx context.Context, f Filter, after string, limit int) (list []Entry, next string, err error) {
	if err := f.Normalize(); err != nil {
		return nil, "", err
	}
	at, err := parseCursor(after)
	if err != nil {
		return nil, "", err
	}
	for rows := 0; at.Index < indexEnd && len(list) < limit && rows < maxListRows; rows += pageRows {
		some, then, err := q.readPage(ctx, &f, at, pageRows)
		if err != nil {
			return nil, "", err
		}
		if f.Sender != "" {
			if some, err = q.addViewsAndFilter(ctx, &f, some); err != nil {
				return nil, "", err
			}
		}
		if len(list)+len(some) > limit { // the next page reads the rest again
			some = some[:limit-len(list)]
			last := some[len(some)-1]
			then = listCursor{Index: at.Index, Destination: last.Destination, Due: db.Micros(last.DueAt), Lease: last.lease, Message: int64(last.Message), N: last.N}
		}
		list, at = append(list, some...), then
	}
	if at.Index < indexEnd {
		next = at.String()
	}
	if f.Sender == "" {
		list, err = q.addViewsAndFilter(ctx, &f, list)
	}
	return list, next, err
}
