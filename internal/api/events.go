// SPDX-License-Identifier: Apache-2.0

package api

import (
	"context"
	"math"
	"slices"
	"strconv"
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
		summary: "List events", description: "What happened, newest first. Each event comes to webhooks with the same id and data. A page may be short although `has_more` is true: " +
			"it holds about 2 MiB, and with several filters a request looks at a bounded number of events. Events are kept for some days: 30, unless the service says otherwise. " + contentScopeNote}, a.listEvents)
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
	CreatedAfter  string `query:"created_after" format:"date-time" doc:"Only what happened at this time or later." example:"2026-01-31T00:00:00Z"`
	CreatedBefore string `query:"created_before" format:"date-time" doc:"Only what happened before this time." example:"2026-02-28T00:00:00Z"`
}

func parsePosition(bad *fault.FieldErrors, name, text string) int64 {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n <= 0 {
		addCursorFault(bad, name)
	}
	return n
}

// filter converts the query. The cursors of this list are positions.
func (in *listEventsInput) filter() (event.Filter, error) {
	var bad fault.FieldErrors
	in.checkCursors(&bad)
	f := in.eventFilterParams.filter(&bad)
	f.Before, f.Limit = math.MaxInt64, in.Limit
	f.Since, f.Until = parseTime(&bad, "created_after", in.CreatedAfter), parseTime(&bad, "created_before", in.CreatedBefore)
	switch {
	case in.After != "":
		f.Before = parsePosition(&bad, "after", in.After)
	case in.Before != "":
		f.After, f.Before = parsePosition(&bad, "before", in.Before), 0
	}
	return f, bad.Err()
}

func (a *API) listEvents(ctx context.Context, p account.Principal, in *listEventsInput) (listResponse[eventResponse], error) {
	out := listResponse[eventResponse]{Data: []eventResponse{}}
	f, err := in.filter()
	if err != nil {
		return out, err
	}
	f.NoContent = !p.HasScope(mailReadScope)
	if ok, err := a.restrictToKeyDomain(ctx, p, &f); err != nil || !ok {
		return out, err
	}
	found, err := a.Events.List(ctx, p.Account, f)
	if err != nil {
		return out, err
	}
	if f.Before == 0 { // in order of position
		slices.Reverse(found.Events)
	}
	for _, e := range found.Events {
		out.Data = append(out.Data, newEventResponse(e))
	}
	if out.HasMore = found.More; found.More {
		next := strconv.FormatInt(found.Last, 10)
		out.NextCursor = &next
	}
	return out, nil
}
