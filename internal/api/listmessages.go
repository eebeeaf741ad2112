// SPDX-License-Identifier: Apache-2.0

package api

import (
	"context"

	"github.com/mailstead/mailstead/internal/account"
	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/outbound"
	"github.com/mailstead/mailstead/internal/outbound/index"
	"github.com/mailstead/mailstead/internal/queue"
)

type listMessagesInput struct {
	pageParams
	messageFilterParams
}

type exportMessagesInput struct {
	exportOrderParams
	messageFilterParams
}

func (a *API) exportMessages(ctx context.Context, p account.Principal, in *exportMessagesInput, after string) (listResponse[messageResponse], error) {
	return a.listMessages(ctx, p, &listMessagesInput{in.page(after), in.messageFilterParams})
}

// messageFilterParams selects sent messages.
type messageFilterParams struct {
	Recipient     []string          `query:"recipient" doc:"Only messages to one of these addresses, in any case, or to any address of these domains; separated by commas, at most 10." example:"bob@example.org"`
	From          []string          `query:"from" doc:"Only messages from one of these addresses, in any case, or from any address of these domains; separated by commas, at most 10." example:"you@example.com"`
	Subject       string            `query:"subject" doc:"Only messages whose subject has all of these words, in any order and case. Words are whole; only the first 32 of a subject count." example:"order shipped"`
	Status        []string          `query:"status" enum:"scheduled,queued,sending,deferred,delivered,bounced,complained,suppressed,failed,cancelled" doc:"Only messages that stand in one of these ways, separated by commas." example:"bounced,failed"`
	Metadata      map[string]string `query:"metadata" doc:"Only messages whose metadata has these members: metadata[order]=42. Strings, numbers, true, false and null are compared as they are written; only the outermost members count, and of those the first 32 in alphabetical order."`
	MetadataKey   []string          `query:"metadata_key" doc:"Only messages whose metadata has these members, whatever their values, separated by commas." example:"order"`
	Tags          []string          `query:"tag" doc:"Only messages with one of these tags, separated by commas; at most 10." example:"welcome,trial"`
	ThreadID      string            `query:"thread_id" doc:"Only messages of this thread." example:"order-42"`
	MailboxID     []string          `query:"mailbox_id" format:"uuid" doc:"Only messages that one of these mailboxes submitted; separated by commas, at most 10."`
	DomainID      []string          `query:"domain_id" format:"uuid" doc:"Only messages sent from one of these domains; separated by commas, at most 10."`
	CreatedAfter  string            `query:"created_after" format:"date-time" doc:"Only messages accepted at this time or later." example:"2026-01-31T00:00:00Z"`
	CreatedBefore string            `query:"created_before" format:"date-time" doc:"Only messages accepted before this time." example:"2026-02-01T00:00:00Z"`
}

// filter converts the query, except for the ids, and adds all faults to bad.
func (in *messageFilterParams) filter(bad *fault.FieldErrors) index.Filter {
	f := index.Filter{
		Recipients: in.Recipient, From: in.From, Subject: in.Subject, Metadata: in.Metadata,
		MetadataKeys: in.MetadataKey, Tags: in.Tags, Thread: in.ThreadID,
	}
	for _, status := range in.Status {
		f.Statuses = append(f.Statuses, queue.State(status))
	}
	f.Since, f.Until = parseTime(bad, "created_after", in.CreatedAfter), parseTime(bad, "created_before", in.CreatedBefore)
	return f
}

func (a *API) listMessages(ctx context.Context, p account.Principal, in *listMessagesInput) (listResponse[messageResponse], error) {
	none := listResponse[messageResponse]{Data: []messageResponse{}}
	var bad fault.FieldErrors
	at, err := in.dbPage(func(id db.ID) (bool, error) {
		_, err := a.sentMessage(ctx, p, id)
		return err == nil, notFoundAsNil(err)
	})
	if err := mergeFaults(&bad, err); err != nil {
		return none, err
	}
	f := in.filter(&bad)
	if f.Mailboxes, err = a.filterIDs(ctx, p, &bad, "mailbox_id", in.MailboxID, "There is no mailbox of yours with this id.", a.mailboxID); err != nil {
		return none, err
	}
	if f.Domains, err = a.filterIDs(ctx, p, &bad, "domain_id", in.DomainID, "There is no domain of yours with this id.", a.domainID); err != nil {
		return none, err
	}
	if len(f.Domains) == 0 {
		only, ok, err := a.keyDomainID(ctx, p)
		if err != nil || !ok && len(bad) == 0 {
			return none, err
		}
		if only != 0 {
			f.Domains = []db.ID{only}
		}
	}
	if err := mergeFaults(&bad, f.Check()); err != nil {
		return none, err
	}
	if err := bad.Err(); err != nil {
		return none, err
	}
	f.Redacted = !p.HasScope(mailReadScope)
	found, err := a.Outbox.Index.Find(ctx, p.Account, f, at)
	if err != nil {
		return none, err
	}
	show := func(m outbound.Message) messageResponse { return newMessageResponse(redactMessage(p, m)) }
	return newListResponse(&in.pageParams, at, found.Messages, found.More, found.Next, show), nil
}
