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

// The content of a received message is not written with its event: most events are never read, and
// writing it would double the cost of receiving a message. The first read of the event loads the
// content from the message, and stores it in the event before anybody gets it. From then on the
// event never changes, even if the message does, and every delivery of it has the same bytes.

// contentBatch is the maximum of events whose content is stored in one commit.
const contentBatch = 16

// A concurrent second reader stores nothing: the first reader's content counts.
var storeContentQuery = db.SQL(`UPDATE event SET data = $2, content = 0 WHERE id = $1 AND content <> 0 RETURNING id`)

// maxPageBytes is the maximum of data in a page, not counting its first event's.
const maxPageBytes = 2 << 20

// completePage adds the content to the events of a page, and cuts the page where it becomes too
// large.
func (l *Log) completePage(ctx context.Context, page Page, content bool) (Page, error) {
	size := 0
	for from := 0; from < len(page.Events); {
		n, err := l.addContent(ctx, page.Events[from:min(from+contentBatch, len(page.Events))], content)
		if err != nil {
			return Page{}, err
		}
		for i := from; i < from+n; i++ {
			if size += len(page.Events[i].Data); size > maxPageBytes && i > 0 {
				page.Events, page.More = slices.Clone(page.Events[:i]), true // frees the memory of the others
				page.Last = page.Events[i-1].Position
				return page, nil
			}
		}
		from += n
	}
	return page, nil
}

// addContent adds the missing content to events, up to the data limit of a page, and returns the
// number of processed events: at least one. Every reader of data goes through it. If content is not
// set, it removes content from the data.
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

// OmitContent removes the content of mail from an event.
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

// storeContent stores the content of events, unless another reader has done so.
func (l *Log) storeContent(ctx context.Context, events []*Event) error {
	if len(events) == 0 {
		return nil
	}
	slices.SortFunc(events, func(a, b *Event) int { return cmp.Compare(a.ID, b.ID) }) // the order in which every writer locks rows
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
		if len(found) > 0 { // otherwise it was just pruned
			e.Data = found[0].Data
		}
	}
	return nil
}
