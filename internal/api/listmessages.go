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
	Recipient     string            `query:"recipient" doc:"Only messages to this address, in any case, or to any address of this domain." example:"bob@example.org"`
	From          string            `query:"from" doc:"Only messages from this address, in any case, or from any address of this domain." example:"you@example.com"`
	Subject       string            `query:"subject" doc:"Only messages whose subject has all of these words, in any order and case. Words are whole; only the first 32 of a subject count." example:"order shipped"`
	Status        string            `query:"status" enum:"scheduled,queued,sending,deferred,delivered,bounced,complained,suppressed,failed,cancelled" doc:"Only messages that stand so."`
	Metadata      map[string]string `query:"metadata" doc:"Only messages whose metadata has these members: metadata[order]=42. Strings, numbers, true, false and null are compared as they are written; only the outermost members count, and of those the first 32 in alphabetical order."`
	MetadataKey   []string          `query:"metadata_key" doc:"Only messages whose metadata has these members, whatever their values, separated by commas." example:"order"`
	Tags          []string          `query:"tag" doc:"Only messages with one of these tags, separated by commas; at most 10." example:"welcome,trial"`
	ThreadID      string            `query:"thread_id" doc:"Only messages of this thread." example:"order-42"`
	MailboxID     string            `query:"mailbox_id" format:"uuid" doc:"Only messages that this mailbox submitted."`
	DomainID      string            `query:"domain_id" format:"uuid" doc:"Only messages sent from this domain."`
	CreatedAfter  string            `query:"created_after" format:"date-time" doc:"Only messages accepted at this time or later." example:"2026-01-31T00:00:00Z"`
	CreatedBefore string            `query:"created_before" format:"date-time" doc:"Only messages accepted before this time." example:"2026-02-01T00:00:00Z"`
}

// filter converts the query, except for the ids, and adds all faults to bad.
func (in *listMessagesInput) filter(bad *fault.FieldErrors) index.Filter {
	f := index.Filter{
		Recipient: in.Recipient, From: in.From, Subject: in.Subject, Status: queue.State(in.Status), Metadata: in.Metadata,
		MetadataKeys: in.MetadataKey, Tags: in.Tags, Thread: in.ThreadID,
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
	for _, id := range []struct {
		name, text, none string
		find             func(context.Context, account.Principal, *idParams) (db.ID, error)
		into             *db.ID
	}{
		{"mailbox_id", in.MailboxID, "There is no mailbox of yours with this id.", a.mailboxID, &f.Mailbox},
		{"domain_id", in.DomainID, "There is no domain of yours with this id.", a.domainID, &f.Domain},
	} {
		if id.text == "" {
			continue
		}
		*id.into, err = id.find(ctx, p, &idParams{id.text})
		if err := mergeFaults(&bad, notFoundAsFieldFault(err, id.name, id.none)); err != nil {
			return none, err
		}
	}
	if f.Domain == 0 {
		only, ok, err := a.keyDomainID(ctx, p)
		if err != nil || !ok && len(bad) == 0 {
			return none, err
		}
		f.Domain = only
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
