// SPDX-License-Identifier: Apache-2.0

package api

import (
	"context"
	"math"
	"slices"
	"time"

	"github.com/mailstead/mailstead/internal/account"
	"github.com/mailstead/mailstead/internal/address"
	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/event"
	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/tag"
)

type eventResponse struct {
	ID        db.ID      `json:"id" doc:"The event's id; X-Event-ID of its webhook deliveries."`
	Type      string     `json:"type" enum:"{event}" doc:"The kind of event."`
	Timestamp time.Time  `json:"timestamp" doc:"When it happened."`
	Version   int        `json:"version" doc:"Of the form of data." example:"1"`
	AccountID db.ID      `json:"account_id" doc:"Your account."`
	Data      jsonObject `json:"data" doc:"What happened; its members depend on the type."`
}

func newEventResponse(e event.Event) eventResponse {
	return eventResponse{ID: e.ID, Type: e.Type, Timestamp: utcTime(e.Timestamp), Version: e.Version, AccountID: e.Account, Data: jsonObject(e.Data)}
}

const contentScopeNote = "For a key without `mail.read`, an `inbound_email` event leaves out what the message says: subject, addresses, header, texts and files; `content_omitted` is true then."

func (a *API) eventRoutes(r *router) {
	handle(r, operation{method: "GET", path: "/events", id: "listEvents", scope: "events.read",
		summary: "List events", description: "What happened, newest first unless `order` says otherwise. Each event comes to webhooks with the same id and data. A page may be short although `has_more` is true: " +
			"it holds about 2 MiB, and with several filters a request looks at a bounded number of events. With `order=asc` and `after` a client reads on from the last event that it has, by its id or the last `next_cursor`: later pages have each event that follows once, whichever node wrote it and however late it was committed. A cursor is a 422 with the code `cursor_expired` once events after it are no longer kept. Events are kept for some days: 30, unless the service says otherwise. " + contentScopeNote}, a.listEvents)
	handleExport(r, operation{path: "/events/export", id: "exportEvents", scope: "events.read",
		summary: "Export events", description: "All that the list has, by the same filters. " + contentScopeNote}, a.exportEvents)
	stream := operation{method: "GET", path: "/events/stream", id: "streamEvents", scope: "events.read", responseMedia: "text/event-stream",
		summary: "Stream events", description: "Server-Sent Events, in order, each once: `id` is where to go on, `event` the type, `data` the same JSON that webhooks get. " +
			"A client that comes back sends the last id as `Last-Event-ID` (or `after`) and misses nothing that is still kept; without it the stream begins with what happens next, " +
			"and with `after=0` at the beginning. Every 15 seconds an id comes without an event, to show that the stream lives. The stream ends when the key does, and when the server restarts: connect again. " + contentScopeNote}
	describeOperation[streamEventsInput, []byte](r.doc, stream)
	r.register(stream, a.streamEvents)
}

// eventFilterParams selects events.
type eventFilterParams struct {
	Types     []string `query:"type" enum:"{event}" doc:"Only these kinds, separated by commas." example:"bounce,complaint"`
	MessageID string   `query:"message" format:"uuid" doc:"Only events of the sent message with this id."`
	Recipient string   `query:"recipient" doc:"Only events about this recipient, in any case." example:"bob@example.org"`
	DomainID  string   `query:"domain_id" format:"uuid" doc:"Only events of this domain: of what it sent, of its mailboxes, and its own."`
	MailboxID string   `query:"mailbox_id" format:"uuid" doc:"Only events of this mailbox: what arrived there."`
	Tags      []string `query:"tag" doc:"Only events of sent messages with one of these tags, separated by commas; at most 10." example:"welcome,trial"`
}

// filter converts the parameters and adds their faults.
func (in *eventFilterParams) filter(bad *fault.FieldErrors) event.Filter {
	f := event.Filter{Kinds: in.Types, Tags: in.Tags}
	if err := tag.CheckFilter(in.Tags); err != nil {
		bad.Add("tag", err.Code, "%s", err.Message)
	}
	if in.Recipient != "" {
		who, err := address.Parse(in.Recipient)
		if err != nil {
			bad.Add("recipient", "invalid_address", "This is not an e-mail address.")
		}
		f.Recipient = who.Key()
	}
	for _, id := range []struct {
		name, text string
		into       *db.ID
	}{{"message", in.MessageID, &f.Message}, {"domain_id", in.DomainID, &f.Domain}, {"mailbox_id", in.MailboxID, &f.Mailbox}} {
		var err error
		if id.text == "" {
			continue
		}
		if *id.into, err = db.ParseID(id.text); err != nil {
			bad.Add(id.name, "invalid_id", "This is not an id.")
		}
	}
	return f
}

// restrictToKeyDomain restricts a filter to the events that a domain-restricted key may see. It
// returns false if there are none.
func (a *API) restrictToKeyDomain(ctx context.Context, p account.Principal, f *event.Filter) (bool, error) {
	id, ok, err := a.keyDomainID(ctx, p)
	if err != nil || !ok || id == 0 {
		return ok, err
	}
	if f.Domain != 0 && f.Domain != id {
		return false, nil
	}
	f.Domain = id
	return true, nil
}

type listEventsInput struct {
	pageParams
	eventFilterParams
	eventTimeParams
}

type exportEventsInput struct {
	exportOrderParams
	eventFilterParams
	eventTimeParams
}

func (a *API) exportEvents(ctx context.Context, p account.Principal, in *exportEventsInput, after string) (listResponse[eventResponse], error) {
	return a.listEvents(ctx, p, &listEventsInput{in.page(after), in.eventFilterParams, in.eventTimeParams})
}

// eventTimeParams selects events by their time.
type eventTimeParams struct {
	CreatedAfter  string `query:"created_after" format:"date-time" doc:"Only what happened at this time or later." example:"2026-01-31T00:00:00Z"`
	CreatedBefore string `query:"created_before" format:"date-time" doc:"Only what happened before this time." example:"2026-02-28T00:00:00Z"`
}

// filter converts the query, except for the cursors.
func (in *listEventsInput) filter(bad *fault.FieldErrors) event.Filter {
	f := in.eventFilterParams.filter(bad)
	f.Limit = in.Limit
	f.Since, f.Until = parseTime(bad, "created_after", in.CreatedAfter), parseTime(bad, "created_before", in.CreatedBefore)
	return f
}

// setPage sets the bounds of the page. The cursors of this list are positions: ids are not in the
// order of commits, and a reader of new events would miss some.
func (in *listEventsInput) setPage(f *event.Filter, find func(field, text string) (int64, error)) error {
	return in.parseCursors(find, func(after, before int64) {
		older, newer := after, before
		if in.Order == ascending {
			older, newer = before, after
		}
		switch {
		case older != 0:
			f.Before = older
		case newer == 0 && in.Order != ascending:
			f.Before = math.MaxInt64
		default:
			f.After = newer
		}
	})
}

// eventPosition returns the position of the event with an id.
func (a *API) eventPosition(ctx context.Context, p account.Principal, only db.ID, field, text string) (int64, error) {
	id, err := db.ParseID(text)
	if err != nil {
		return 0, cursorFault(field)
	}
	e, err := a.Events.Get(ctx, p.Account, id, false)
	switch {
	case err == nil && e.Position > 0 && (only == 0 || e.Domain == only):
		return e.Position, nil
	case err != nil && !fault.Is(err, fault.NotFound):
		return 0, err
	}
	first, err := a.Events.First(ctx)
	if err == nil && id < first.ID {
		return 0, expiredCursorFault(field)
	}
	return 0, orFault(err, cursorFault(field))
}

func expiredCursorFault(field string) error {
	var bad fault.FieldErrors
	bad.Add(field, "cursor_expired", "Events that followed this one are no longer kept. Begin without a cursor.")
	return bad.Err()
}

// checkNotPruned returns a fault if events after a position have been deleted, so that a reader
// that goes on there would miss them.
func (a *API) checkNotPruned(ctx context.Context, in *listEventsInput, f event.Filter) error {
	if f.After == 0 {
		return nil
	}
	first, err := a.Events.First(ctx)
	if err != nil || f.After >= first.Position-1 {
		return err
	}
	if in.Before != "" {
		return expiredCursorFault("before")
	}
	return expiredCursorFault("after")
}

func (a *API) listEvents(ctx context.Context, p account.Principal, in *listEventsInput) (listResponse[eventResponse], error) {
	out := listResponse[eventResponse]{Data: []eventResponse{}}
	var bad fault.FieldErrors
	f := in.filter(&bad)
	f.NoContent = !p.HasScope(mailReadScope)
	only, ok, err := a.keyDomainID(ctx, p)
	if err != nil || !ok && len(bad) == 0 {
		return out, err
	}
	err = in.setPage(&f, func(field, text string) (int64, error) { return a.eventPosition(ctx, p, only, field, text) })
	if err == nil {
		err = a.checkNotPruned(ctx, in, f)
	}
	if err := mergeFaults(&bad, err); err != nil {
		return out, err
	}
	if err := bad.Err(); err != nil {
		return out, err
	}
	if ok, err := a.restrictToKeyDomain(ctx, p, &f); err != nil || !ok {
		return out, err
	}
	found, err := a.readEvents(ctx, p, f)
	if err == nil {
		err = a.checkNotPruned(ctx, in, f) // some may have been deleted since
	}
	if err != nil {
		return out, err
	}
	if (f.Before == 0) != (in.Order == ascending) {
		slices.Reverse(found.Events)
	}
	for _, e := range found.Events {
		out.Data = append(out.Data, newEventResponse(e))
	}
	if out.HasMore = found.More; found.Last != math.MaxInt64 {
		out.NextCursor = in.cursor(found.Last)
	}
	return out, nil
}

// readEvents reads a page. At the newest end the cursor moves on to the last event of all, which
// need not match: else it would expire while nothing matches.
func (a *API) readEvents(ctx context.Context, p account.Principal, f event.Filter) (event.Page, error) {
	last, err := a.Events.LastPosition(ctx) // before the page is read, which has all events up to there
	if err != nil {
		return event.Page{}, err
	}
	found, err := a.Events.List(ctx, p.Account, f)
	if f.Before == 0 && !found.More {
		found.Last = max(found.Last, last)
	}
	return found, err
}
