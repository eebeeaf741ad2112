// SPDX-License-Identifier: Apache-2.0

package event

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"slices"

	"github.com/mailstead/mailstead/internal/db"
)

// The content of a message that arrived is not written with its event: most
// events are read by nobody, and it would double what the arrival of a message
// costs. It is read from the message when the event is first read, and kept in
// the event before anybody gets it: from then on the event never changes,
// whatever becomes of the message, and every delivery of it has the same bytes.

// contentBatch bounds how many events of a page get their content in one commit.
const contentBatch = 16

// A second reader that comes at the same moment keeps nothing: the first one's
// content counts.
var storeContentQuery = db.SQL(`UPDATE event SET data = $2, content = 0 WHERE id = $1 AND content <> 0 RETURNING id`)

// maxPageBytes bounds the data of a page, but for its first event's.
const maxPageBytes = 2 << 20

// completePage gives the events of a page their content, and cuts the page where it
// becomes too much at once.
func (l *Log) completePage(ctx context.Context, page Page, content bool) (Page, error) {
	size := 0
	for from := 0; from < len(page.Events); {
		n, err := l.addContent(ctx, page.Events[from:min(from+contentBatch, len(page.Events))], content)
		if err != nil {
			return Page{}, err
		}
		for i := from; i < from+n; i++ {
			if size += len(page.Events[i].Data); size > maxPageBytes && i > 0 {
				page.Events, page.More = slices.Clone(page.Events[:i]), true // the others are not to be kept
				page.Last = page.Events[i-1].Position
				return page, nil
			}
		}
		from += n
	}
	return page, nil
}

// addContent gives the events that lack their content theirs, until they have as much
// data as a page may, and returns of how many that is: one at least. Every reader
// of data passes through here. Without content it takes out what the data has of it.
func (l *Log) addContent(ctx context.Context, events []Event, content bool) (n int, err error) {
	var lacking []*Event
	for size := 0; n < len(events) && size <= maxPageBytes; n++ {
		e := &events[n]
		if !content {
			if err := l.OmitContent(e); err != nil {
				return 0, err
			}
		} else if e.contentMessage != 0 {
			if err := l.completeData(ctx, e); err != nil {
				return 0, err
			}
			lacking = append(lacking, e)
		}
		size += len(e.Data)
	}
	return n, l.storeContent(ctx, lacking)
}

// OmitContent takes the content of mail out of an event.
func (l *Log) OmitContent(e *Event) error {
	if l.RemoveContent == nil {
		return errors.New("nobody is there to take the content out of an event")
	}
	rest, err := l.RemoveContent(e.Type, e.Data)
	if err != nil || rest == nil {
		return err
	}
	text, err := encode(e.Type, rest)
	e.Data, e.contentMessage = json.RawMessage(text), 0
	return err
}

func (l *Log) completeData(ctx context.Context, e *Event) error {
	if l.LoadContent == nil {
		return errors.New("an event lacks its content, and nobody is there to read it")
	}
	full, err := l.LoadContent(ctx, e.contentMessage, e.Data)
	if err != nil {
		return err
	}
	text, err := encode(e.Type, full)
	e.Data = json.RawMessage(text)
	return err
}

// storeContent settles the content of events, unless somebody else has done it.
func (l *Log) storeContent(ctx context.Context, events []*Event) error {
	if len(events) == 0 {
		return nil
	}
	slices.SortFunc(events, func(a, b *Event) int { return cmp.Compare(a.ID, b.ID) }) // as every writer takes rows
	kept := map[db.ID]bool{}
	err := l.DB.Write(ctx, 0, &db.Mutation{Guard: func(b *db.Batch) {
		clear(kept)
		for _, e := range events {
			b.Queue(storeContentQuery.With(e.ID, string(e.Data))).Each(func(r db.Row) error {
				kept[e.ID] = true
				return nil
			})
		}
	}})
	if err != nil {
		return err
	}
	for _, e := range events {
		e.contentMessage = 0
		if kept[e.ID] {
			continue
		}
		found, err := db.All(ctx, l.DB, eventQuery.With(e.ID, e.Account), scanEvent(e.Account))
		if err != nil {
			return err
		}
		if len(found) > 0 { // else it was pruned just now
			e.Data = found[0].Data
		}
	}
	return nil
}
