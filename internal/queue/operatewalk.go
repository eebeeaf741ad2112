// SPDX-License-Identifier: Apache-2.0

package queue

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"math"
	"strings"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/fault"
)

// The open deliveries lie in three places, each with an index that walks
// through it: what waits, what is held, and what nodes have in hand.
const (
	ofWaiting = iota
	ofHeld
	ofHand
	nowhere
)

// spot is where a walk stands.
type spot struct {
	Leg         int    `json:"l,omitempty"` // of an order, which may come to a place twice
	Place       int    `json:"p"`
	Destination string `json:"d,omitempty"`
	Due         int64  `json:"t,omitempty"`
	Tenure      db.ID  `json:"o,omitempty"`
	Message     int64  `json:"m,omitempty"`
	N           int    `json:"n,omitempty"`
}

func (s spot) next() spot {
	return spot{Place: s.Place + 1, Due: math.MinInt64}
}

// start is where a walk begins; waiting rows may be due at any time.
var start = spot{Due: math.MinInt64}

// String makes a cursor of a spot.
func (s spot) String() string {
	text, _ := json.Marshal(s) // has no way to fail
	return base64.RawURLEncoding.EncodeToString(text)
}

func parseSpot(cursor string) (spot, error) {
	if cursor == "" {
		return start, nil
	}
	var s spot
	text, err := base64.RawURLEncoding.DecodeString(cursor)
	if err == nil {
		err = json.Unmarshal(text, &s)
	}
	if err != nil || s.Place < 0 || s.Place > nowhere || strings.ContainsRune(s.Destination, 0) {
		return s, errCursor
	}
	return s, nil
}

var errCursor = func() error {
	var bad fault.Fields
	badCursor(&bad)
	return bad.Err()
}()

func badCursor(bad *fault.Fields) {
	bad.Add("after", "invalid_cursor", "This is not a cursor of this list.")
}

var (
	waitingAll = db.SQL(`SELECT message, n, account, recipient, destination, state, due_at, expires_at, COALESCE(tenure, 0), hold,
			attempts, code, enhanced, reply, remote
		FROM delivery WHERE tenure IS NULL AND state IN ('scheduled', 'queued', 'deferred')
			AND (destination, due_at, message, n) > ($1, $2, $3, $4) ORDER BY destination, due_at, message, n LIMIT $5`)
	waitingTo = db.SQL(`SELECT message, n, account, recipient, destination, state, due_at, expires_at, COALESCE(tenure, 0), hold,
			attempts, code, enhanced, reply, remote
		FROM delivery WHERE tenure IS NULL AND state IN ('scheduled', 'queued', 'deferred')
			AND (destination, due_at, message, n) > ($1, $2, $3, $4) AND destination <= $1 ORDER BY destination, due_at, message, n LIMIT $5`)
	waitingOf = db.SQL(`SELECT message, n, account, recipient, destination, state, due_at, expires_at, COALESCE(tenure, 0), hold,
			attempts, code, enhanced, reply, remote
		FROM delivery WHERE tenure IS NULL AND state IN ('scheduled', 'queued', 'deferred')
			AND (account, message, n) > ($1, $2, $3) AND account <= $1 ORDER BY account, message, n LIMIT $4`)
	heldAll = db.SQL(`SELECT message, n, account, recipient, destination, state, due_at, expires_at, COALESCE(tenure, 0), hold,
			attempts, code, enhanced, reply, remote
		FROM delivery
		{sqlite}INDEXED BY delivery_held
		WHERE tenure = 0 AND state IN ('scheduled', 'queued', 'deferred') AND (destination, message, n) > ($1, $2, $3) ORDER BY destination, message, n LIMIT $4`)
	heldTo = db.SQL(`SELECT message, n, account, recipient, destination, state, due_at, expires_at, COALESCE(tenure, 0), hold,
			attempts, code, enhanced, reply, remote
		FROM delivery
		{sqlite}INDEXED BY delivery_held
		WHERE tenure = 0 AND state IN ('scheduled', 'queued', 'deferred') AND destination = $1 AND (message, n) > ($2, $3) ORDER BY message, n LIMIT $4`)
	heldOf = db.SQL(`SELECT message, n, account, recipient, destination, state, due_at, expires_at, COALESCE(tenure, 0), hold,
			attempts, code, enhanced, reply, remote
		FROM delivery WHERE tenure = 0 AND state IN ('scheduled', 'queued', 'deferred')
			AND account = $1 AND (message, n) > ($2, $3) ORDER BY message, n LIMIT $4`)
	handAll = db.SQL(`SELECT message, n, account, recipient, destination, state, due_at, expires_at, COALESCE(tenure, 0), hold,
			attempts, code, enhanced, reply, remote
		FROM delivery WHERE tenure IS NOT NULL AND (tenure, message, n) > ($1, $2, $3) ORDER BY tenure, message, n LIMIT $4`)
	openRows = db.SQL(`SELECT message, n, account, recipient, destination, state, due_at, expires_at, COALESCE(tenure, 0), hold,
			attempts, code, enhanced, reply, remote
		FROM delivery WHERE message = $1 AND n > $2 AND state IN ('scheduled', 'queued', 'deferred') ORDER BY n LIMIT $3`)
)

func scanEntry(r db.Row) (e Entry, err error) {
	var due, expires int64
	err = r.Scan(&e.Message, &e.N, &e.Account, &e.Recipient, &e.Destination, (*string)(&e.state), &due, &expires, &e.tenure, &e.hold,
		&e.Attempts, &e.Code, &e.Enhanced, &e.Reply, &e.Remote)
	e.State, e.Held, e.AcceptedAt, e.DueAt, e.ExpiresAt = e.state, e.hold != 0, e.Message.Time(), db.Time(due), db.Time(expires)
	if e.tenure > 0 && e.state != Scheduled {
		e.State = Sending
	}
	return e, err
}

// read reads up to limit rows from a spot on, and where to go on; at nowhere
// the walk has ended. Of the rows those that fit are returned, so that there
// may be none although the walk goes on.
func (o *Operator) read(ctx context.Context, f *Filter, s spot, limit int) (list []Entry, next spot, err error) {
	if f.Message != 0 {
		if s.Message == 0 {
			s.N = -1
		}
	} else if f.nothingAt(s.Place) {
		return nil, s.next(), nil
	}
	all, err := db.All(ctx, o.DB, f.statement(s, limit), scanEntry)
	if err != nil {
		return nil, s, err
	}
	switch {
	case f.Message != 0 && len(all) < limit:
		next = spot{Place: nowhere}
	case len(all) < limit:
		next = s.next()
	default:
		last := all[limit-1]
		next = spot{Place: s.Place, Destination: last.Destination, Due: db.Micros(last.DueAt), Tenure: last.tenure, Message: int64(last.Message), N: last.N}
	}
	now := o.Now()
	list = all[:0]
	for _, e := range all {
		if f.fits(&e, now) {
			list = append(list, e)
		}
	}
	return list, next, nil
}

// nothingAt reports whether nothing at a place can fit.
func (f *Filter) nothingAt(place int) bool {
	switch place {
	case ofWaiting:
		return f.State == Sending || f.Held != nil && *f.Held
	case ofHeld:
		return f.State == Sending || f.Held != nil && !*f.Held
	}
	return f.State == Queued || f.State == Deferred
}

func (f *Filter) statement(s spot, limit int) db.Statement {
	switch {
	case f.Message != 0:
		return openRows.With(f.Message, s.N, limit)
	case s.Place == ofHand:
		if s.Tenure == 0 { // past what is held
			s.Message = math.MaxInt64
		}
		return handAll.With(s.Tenure, s.Message, s.N, limit)
	case s.Place == ofHeld && f.Account != 0:
		return heldOf.With(f.Account, s.Message, s.N, limit)
	case s.Place == ofHeld && f.Destination != "":
		return heldTo.With(f.Destination, s.Message, s.N, limit)
	case s.Place == ofHeld:
		return heldAll.With(s.Destination, s.Message, s.N, limit)
	case f.Account != 0:
		return waitingOf.With(f.Account, s.Message, s.N, limit)
	case f.Destination != "":
		return waitingTo.With(f.Destination, s.Due, s.Message, s.N, limit)
	}
	return waitingAll.With(s.Destination, s.Due, s.Message, s.N, limit)
}

const (
	// readRows is how many rows are read at once.
	readRows = 500
	// listRows bounds what is read for a page of a list, so that a filter that
	// fits little answers in time.
	listRows = 20_000
)

// List returns deliveries that are not final, at most limit: what waits by
// destination and the time of the next try, what is held, and what nodes have
// in hand. next goes on from there, "" at the end; a page may be short although
// there is more.
func (o *Operator) List(ctx context.Context, f Filter, after string, limit int) (list []Entry, next string, err error) {
	if err := f.Check(); err != nil {
		return nil, "", err
	}
	at, err := parseSpot(after)
	if err != nil {
		return nil, "", err
	}
	for rows := 0; at.Place < nowhere && len(list) < limit && rows < listRows; rows += readRows {
		some, then, err := o.read(ctx, &f, at, readRows)
		if err != nil {
			return nil, "", err
		}
		if f.Sender != "" {
			if some, err = o.withLetters(ctx, &f, some); err != nil {
				return nil, "", err
			}
		}
		if len(list)+len(some) > limit { // the rest is read again
			some = some[:limit-len(list)]
			last := some[len(some)-1]
			then = spot{Place: at.Place, Destination: last.Destination, Due: db.Micros(last.DueAt), Tenure: last.tenure, Message: int64(last.Message), N: last.N}
		}
		list, at = append(list, some...), then
	}
	if at.Place < nowhere {
		next = at.String()
	}
	if f.Sender == "" {
		list, err = o.withLetters(ctx, &f, list)
	}
	return list, next, err
}
