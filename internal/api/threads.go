// SPDX-License-Identifier: Apache-2.0

package api

import (
	"context"
	"net/http"
	"time"

	"github.com/mailstead/mailstead/internal/account"
	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/queue"
	"github.com/mailstead/mailstead/internal/summary"
	"github.com/mailstead/mailstead/internal/web"
)

type threadResponse struct {
	ID         string          `json:"id" doc:"The thread's id." example:"order-42"`
	Messages   []threadMessage `json:"messages" doc:"A page of its messages, oldest first."`
	HasMore    bool            `json:"has_more" doc:"Whether there are later ones." example:"false"`
	NextCursor *string         `json:"next_cursor" doc:"Give it as after to go on; null at the end."`
}

type threadMessage struct {
	ID             db.ID             `json:"id" doc:"The message's id: of a sent message, or the id of the inbound_email event's data."`
	Direction      string            `json:"direction" enum:"outbound,inbound" doc:"outbound is what was sent, by the API or by a mailbox; inbound what arrived in a mailbox."`
	Status         *queue.State      `json:"status" doc:"Where a sent message stands."`
	MailboxID      *db.ID            `json:"mailbox_id" doc:"The mailbox that submitted the message, or in which it arrived; null for the API. Of several in which it arrived, the first."`
	MessageID      string            `json:"message_id" doc:"The Message-ID header field; empty if the message has none." example:"<abc@example.org>"`
	From           []summary.Address `json:"from" doc:"The author, as the header names it."`
	To             []summary.Address `json:"to" doc:"Recipients: of a sent message where it goes, of one that arrived what its header says, at most 50."`
	Cc             []summary.Address `json:"cc" doc:"Further recipients, whom all see."`
	Bcc            []summary.Address `json:"bcc" doc:"Further recipients of a sent message, whom nobody sees."`
	Subject        string            `json:"subject" doc:"The subject line." example:"Re: Your order"`
	Text           *string           `json:"text" doc:"The plain text, in UTF-8 and at most 64 KiB, if expand asks for it; null if the message has none, or was deleted meanwhile."`
	TextTruncated  bool              `json:"text_truncated" doc:"Whether the text goes on, or was left out since the messages of the page have more than 64 MiB together: show it by itself."`
	Size           int64             `json:"size" doc:"Of the whole message, in bytes."`
	CreatedAt      time.Time         `json:"created_at" doc:"When it was accepted, or arrived."`
	ContentOmitted bool              `json:"content_omitted" doc:"Whether the message arrived or was forwarded and the key lacks the scope mail.read: from, subject and, of one that arrived, to are empty then."`
}

// getThreadInput holds the path and query parameters of a thread.
type getThreadInput struct {
	ID     string   `path:"id" minLength:"1" maxLength:"255" doc:"The thread's id; what has a meaning in a URL must be percent-encoded, a slash too."`
	Limit  int      `query:"limit" minimum:"1" maximum:"100" default:"50" doc:"How many messages at most."`
	After  string   `query:"after" doc:"Only what comes after this cursor: what is later."`
	Expand []string `query:"expand" enum:"messages.text" doc:"messages.text: the plain text of each message, too. It needs the scope mail.read." example:"messages.text"`
}

func (a *API) threadRoutes(r *router) {
	// Otherwise the mux would redirect to the path with a trailing slash.
	r.mux.HandleFunc("/api/v1/threads", func(w http.ResponseWriter, req *http.Request) { a.writeProblem(w, req, errNoEndpoint) })
	handle(r, operation{method: "GET", path: "/threads/{id...}", id: "getThread", scope: "messages.read",
		summary: "Show a thread", description: "The messages that answer each other, sent and received, oldest first. Messages belong together by In-Reply-To, then References, " +
			"or because they were sent with the same `thread_id`; never by their subject. A message to a mailbox of your own is there twice: as it was sent, and as it arrived."}, a.getThread)
}

func (a *API) getThread(ctx context.Context, p account.Principal, in *getThreadInput) (threadResponse, error) {
	out := threadResponse{ID: in.ID, Messages: []threadMessage{}}
	var after db.ID
	if in.After != "" {
		var err error
		if after, err = db.ParseID(in.After); err != nil {
			var bad fault.FieldErrors
			addCursorFault(&bad, "after")
			return out, bad.Err()
		}
	}
	if len(in.Expand) > 0 {
		if err := p.RequireScope(mailReadScope); err != nil {
			return out, err
		}
	}
	if !web.ValidThreadID(in.ID) {
		return out, errNotFound
	}
	only, ok, err := a.keyDomainID(ctx, p)
	if err != nil {
		return out, err
	}
	if !ok {
		return out, errNotFound
	}
	left := textBudget(maxThreadTextBytes)
	for {
		found, more, err := a.ThreadPage(ctx, p.Account, only, in.ID, after, in.Limit)
		if err != nil {
			return out, err
		}
		if len(found) == 0 && in.After == "" {
			return out, errNotFound
		}
		if len(found) > 0 {
			after = found[len(found)-1].ID
		}
		if found, err = a.OmitDeletedMailboxMessages(ctx, p.Account, found); err != nil {
			return out, err
		}
		for _, m := range found {
			shown, err := a.newThreadMessage(ctx, p, m, len(in.Expand) > 0, &left)
			if err != nil {
				return out, err
			}
			out.Messages = append(out.Messages, shown)
		}
		if more {
			if len(out.Messages) == 0 {
				continue // all messages of the page were in deleted mailboxes
			}
			next := after.String()
			out.HasMore, out.NextCursor = true, &next
		}
		return out, nil
	}
}
