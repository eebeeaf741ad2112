// SPDX-License-Identifier: Apache-2.0

package event

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/tag"
)

// Filter selects numbered events of an account. An event must match all fields that are set.
type Filter struct {
	Kinds     []string // any of these kinds
	Message   db.ID    // the outbound message
	Recipient string   // the recipient's address.Key
	Domain    db.ID
	Mailbox   db.ID
	Tags      []string  // any of these tags
	Since     time.Time // this time or later
	Until     time.Time // before this time
	After     int64     // position; 0 for the beginning
	Before    int64     // position; 0 for no bound. With Before the newest events come first
	Limit     int       // maximum of events; 0 is db.DefaultPageSize
	NoContent bool      // leave out the content of mail
}

// Page is a result of List.
type Page struct {
	Events []Event
	More   bool  // there may be more events after Last
	Last   int64 // last position read; where the next page begins
}

const (
	// maxScanned is the maximum of events read for one page. A page that reaches it is shorter, and
	// says where to continue.
	maxScanned = 2000
	// maxScannedBytes is the maximum of data read for one page.
	maxScannedBytes = 8 * maxPageBytes
	// initialRows is how many events are read first. Each further read doubles the number while
	// events are small.
	initialRows = 16
	// maxNumberingDelay is how long after its time, compared with other events, an event may get
	// its position.
	maxNumberingDelay = time.Minute
)

var (
	firstPositionQuery = db.SQL(`SELECT COALESCE(position, 0) FROM event WHERE id >= $1 ORDER BY id LIMIT 1`)
	// Events after a time may have positions below that of the first one, so the list begins at the
	// lowest position of the first 1000.
	lowestPositionQuery = db.SQL(`SELECT COALESCE(MIN(position), 0) FROM (SELECT position FROM event
		WHERE id >= $1 AND position IS NOT NULL ORDER BY id LIMIT 1000) AS first`)
	firstEventQuery   = db.SQL(`SELECT position, id, account FROM event WHERE position IS NOT NULL ORDER BY position LIMIT 1`)
	lastPositionQuery = db.SQL(`SELECT position FROM event WHERE position IS NOT NULL ORDER BY position DESC LIMIT 1`)
)

// List returns an account's numbered events: in order after a position, or newest first before one.
// It reads a bounded number of events, and returns about 2 MiB of data, so a page may be short
// although more follow.
func (l *Log) List(ctx context.Context, account db.ID, f Filter) (Page, error) {
	limit := f.Limit
	if limit <= 0 {
		limit = db.DefaultPageSize
	}
	from, err := l.startPosition(ctx, &f)
	if err != nil {
		return Page{}, err
	}
	page := Page{Last: from}
	size := 0
	for looked, read, n := 0, 0, initialRows; ; {
		some, bytes, err := l.readSome(ctx, account, f.statement(account, page.Last, n))
		if err != nil {
			return Page{}, err
		}
		all := len(some) < n && bytes <= maxPageBytes
		for _, e := range some {
			if f.pastEnd(&e) {
				return l.completePage(ctx, page, !f.NoContent)
			}
			if !f.matches(&e) {
				page.Last = e.Position
				continue
			}
			if len(page.Events) == limit || size > maxPageBytes {
				page.More = true
				return l.completePage(ctx, page, !f.NoContent)
			}
			page.Events, page.Last = append(page.Events, e), e.Position
			size += len(e.Data)
		}
		looked, read = looked+len(some), read+bytes
		if all || looked >= maxScanned || read >= maxScannedBytes {
			page.More = !all
			return l.completePage(ctx, page, !f.NoContent)
		}
		switch {
		case bytes > maxPageBytes:
			n = len(some) // PostgreSQL sends all requested rows
		case bytes < maxPageBytes/4:
			n = min(2*n, max(limit+1, db.MaxPageSize))
		}
	}
}

// errStopReading ends the reading of events.
var errStopReading = errors.New("enough")

// readSome reads events up to the data limit of a page, and returns the size of their data. The
// limit matters because there may be many concurrent readers.
func (l *Log) readSome(ctx context.Context, account db.ID, s db.Statement) (list []Event, bytes int, err error) {
	read := scanEvent(account)
	err = l.DB.Each(ctx, s, func(r db.Row) error {
		e, err := read(r)
		if err != nil {
			return err
		}
		list = append(list, e)
		if bytes += len(e.Data); bytes > maxPageBytes {
			return errStopReading
		}
		return nil
	})
	if errors.Is(err, errStopReading) {
		err = nil
	}
	return list, bytes, err
}

func (f *Filter) matches(e *Event) bool {
	switch {
	case len(f.Kinds) > 0 && !slices.Contains(f.Kinds, e.Type),
		f.Message != 0 && e.Message != f.Message,
		f.Recipient != "" && e.Recipient != f.Recipient,
		f.Domain != 0 && e.Domain != f.Domain,
		f.Mailbox != 0 && e.Mailbox != f.Mailbox,
		len(f.Tags) > 0 && !tag.ContainsAny(e.Tags, f.Tags),
		!f.Since.IsZero() && e.Timestamp.Before(f.Since),
		!f.Until.IsZero() && !e.Timestamp.Before(f.Until):
		return false
	}
	return true
}

// pastEnd reports whether neither this event nor any after it can match.
func (f *Filter) pastEnd(e *Event) bool {
	if f.Before > 0 {
		return !f.Since.IsZero() && e.Timestamp.Before(f.Since.Add(-maxNumberingDelay))
	}
	return !f.Until.IsZero() && e.Timestamp.After(f.Until.Add(maxNumberingDelay))
}

// startPosition returns the position at which the list begins. Since and Until bound it, because
// ids are ordered by time.
func (l *Log) startPosition(ctx context.Context, f *Filter) (int64, error) {
	first, at, from := lowestPositionQuery, f.Since.Add(-maxNumberingDelay), f.After
	if f.Before > 0 {
		first, at, from = firstPositionQuery, f.Until.Add(maxNumberingDelay), f.Before
	}
	if f.Before > 0 && f.Until.IsZero() || f.Before == 0 && f.Since.IsZero() {
		return from, nil
	}
	var position int64
	err := db.IfNoRow(l.DB.One(ctx, first.With(db.MinIDAt(at)), &position), nil) // 0: no event is that late
	switch {
	case err != nil:
		return 0, err
	case position == 0: // or not numbered yet
		return from, nil
	case f.Before > 0:
		return min(from, position+1), nil
	}
	return max(from, position-1), nil
}

// LastPosition returns the position of the last numbered event, 0 if there is none: readers that
// want only new events begin there.
func (l *Log) LastPosition(ctx context.Context) (position int64, err error) {
	err = l.DB.One(ctx, lastPositionQuery.With(), &position)
	return position, db.IfNoRow(err, nil)
}

// First returns the position and the id of the first event that is kept, of any account; zero if
// there is none, or if no event before it can have been deleted.
func (l *Log) First(ctx context.Context) (e Event, err error) {
	err = l.DB.One(ctx, firstEventQuery.With(), &e.Position, &e.ID, &e.Account)
	if e.Account == 0 && e.Position == skippedPositions { // the database was restored without events
		e = Event{}
	}
	return e, db.IfNoRow(err, nil)
}
