// SPDX-License-Identifier: Apache-2.0

package outbound

import (
	"context"
	"encoding/json"
	"time"

	"github.com/mailstead/mailstead/internal/account"
	"github.com/mailstead/mailstead/internal/address"
	"github.com/mailstead/mailstead/internal/blob"
	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/domain"
	"github.com/mailstead/mailstead/internal/message"
	"github.com/mailstead/mailstead/internal/queue"
	"github.com/mailstead/mailstead/internal/suppression"
	"github.com/mailstead/mailstead/internal/tag"
)

// preparedMessage is a message on its way to its commit.
type preparedMessage struct {
	index             int        // index of the send in the request
	send              *validSend // nil for a submission
	sender            domain.SendingDomain
	row               *row
	blob              *blob.Blob
	recipients        []queue.Recipient
	sendAt            time.Time // zero: immediately
	offersUnsubscribe bool      // the message offers to unsubscribe

	suppressionCheck *suppression.Check // runs in the message's commit; nil if suppressions were applied before
	checkedAddresses []address.Address  // the recipients that suppressionCheck looks up
}

// prepare composes the messages. Each step handles all messages, so that it can batch look-ups.
//
// The steps between initRow and compose depend on other data: the thread, and the suppressed
// recipients. A single message looks up suppressions in its commit, unless the results are needed
// before (answered).
func (o *Outbox) prepare(ctx context.Context, p account.Principal, prepared []*preparedMessage, now time.Time, answered bool) error {
	for _, pc := range prepared {
		o.initRow(p.Account, pc, now)
		o.addUnsubscribe(pc, pc.send)
	}
	if err := o.assignThreads(ctx, p, prepared); err != nil {
		return err
	}
	var err error
	if len(prepared) == 1 && !answered {
		err = o.prepareSuppressionCheck(prepared[0])
	} else {
		err = o.applySuppressions(ctx, p.Account, prepared)
	}
	if err != nil {
		return err
	}
	for _, pc := range prepared {
		if err := o.compose(ctx, pc); err != nil {
			o.discard(ctx, prepared)
			return err
		}
	}
	return nil
}

// initRow sets the message's row, recipients and dates.
func (o *Outbox) initRow(account db.ID, pc *preparedMessage, now time.Time) {
	l := pc.send
	id := o.DB.NewID()
	pc.sendAt = l.sendAt
	start := now
	if pc.sendAt.After(now) {
		start = pc.sendAt
	}
	pc.row = &row{
		id: id, account: account, domain: pc.sender.Domain, returnPathHost: o.returnPathHost(pc.sender),
		from: l.draft.From.Display(), subject: l.draft.Subject, messageID: "<" + id.String() + "@" + l.from.Domain + ">",
		thread: l.threadID, metadata: l.metadata, tags: l.tags, created: now, expires: start.Add(ExpiryAPI),
		template: l.template, templateVersion: l.templateVersion, private: l.class == ClassService,
	}
	l.draft.Date, l.draft.MessageID = start, pc.row.messageID
	if !l.hasFeedbackID {
		l.draft.ExtraFields = append(l.draft.ExtraFields, o.feedbackIDField(account, l))
	}
	pc.recipients = queueRecipients(l.recipients)
}

func queueRecipients(recipients []recipient) []queue.Recipient {
	to := make([]queue.Recipient, len(recipients))
	for i, r := range recipients {
		to[i] = queue.Recipient{Address: r.String(), Kind: r.kind, Destination: r.Domain, Notify: r.notify, Original: r.originalRecipient}
	}
	return to
}

// returnPathHost returns the host that receives bounces of API mail. It is the From domain itself
// if its MX and SPF are ours, so that SPF aligns (RFC 7489 §3.1.2); otherwise it is our own.
func (o *Outbox) returnPathHost(s domain.SendingDomain) string {
	if s.Aligned {
		return s.Name
	}
	return "bounces." + o.Host
}

// compose writes the message into a blob.
func (o *Outbox) compose(ctx context.Context, pc *preparedMessage) error {
	w := o.Blobs.Create(ctx)
	defer w.Abort()
	composed, err := message.Compose(w, &pc.send.draft)
	if err != nil {
		return err
	}
	if pc.blob, err = w.Finish(); err != nil {
		return err
	}
	pc.row.size, pc.row.blob, pc.row.utf8 = pc.blob.Size, pc.blob.ID, composed.NeedsUTF8
	return nil
}

// discard removes composed messages that will never be committed.
func (o *Outbox) discard(ctx context.Context, prepared []*preparedMessage) {
	for _, pc := range prepared {
		if pc.blob != nil {
			pc.blob.Discard(ctx)
		}
	}
}

// commit writes messages, their bytes and their deliveries in one commit. guard, if not nil, queues
// the statements that decide whether it may happen.
func (o *Outbox) commit(ctx context.Context, account db.ID, prepared []*preparedMessage, guard func(*db.Batch)) error {
	if len(prepared) == 0 && guard == nil {
		return nil
	}
	plans := make([]*queue.Reservation, len(prepared))
	for i, pc := range prepared {
		plans[i] = o.reserve(pc)
	}
	err := o.DB.Write(ctx, account, &db.Mutation{
		Guard: func(batch *db.Batch) {
			if guard != nil {
				guard(batch)
			}
			for _, pc := range prepared {
				if pc.suppressionCheck != nil {
					pc.suppressionCheck.AddStatements(batch)
				}
			}
		},
		Apply: func(batch *db.Batch) {
			for i, pc := range prepared {
				if pc.suppressionCheck != nil {
					pc.markSuppressed(plans[i])
				}
				pc.addStatements(batch, plans[i])
			}
		},
		AfterCommit: func() {
			for _, plan := range plans {
				plan.Dispatch()
			}
		},
	})
	if err != nil {
		for _, plan := range plans {
			plan.Abandon()
		}
	}
	return err
}

// reserve reserves the message's deliveries in the queue.
func (o *Outbox) reserve(pc *preparedMessage) *queue.Reservation {
	return o.Queue.Reserve(queue.Message{
		MessageInfo: pc.row.messageInfo(), ID: pc.row.id, DueAt: pc.sendAt, ExpiresAt: pc.row.expires, OffersUnsubscribe: pc.offersUnsubscribe, NotifySender: pc.row.wantsReports(),
	}, pc.recipients)
}

// addStatements adds the message's rows to a batch.
func (pc *preparedMessage) addStatements(b *db.Batch, plan *queue.Reservation) {
	b.Queue(pc.blob.InsertStatement())
	b.Queue(pc.row.insertStatement())
	plan.AddStatements(b)
}

// acceptedMessage returns the response for a message that is, or will be, committed.
func (pc *preparedMessage) acceptedMessage() AcceptedMessage {
	r := pc.row
	a := AcceptedMessage{
		ID: r.id, MessageID: r.messageID, ThreadID: r.thread, Metadata: json.RawMessage(r.metadata), Tags: tag.Split(r.tags),
		SendAt: pc.sendAt, CreatedAt: r.created,
	}
	states := make([]queue.State, len(pc.recipients))
	for i, to := range pc.recipients {
		switch {
		case to.Suppressed != "":
			states[i] = queue.Suppressed
		case pc.sendAt.After(r.created):
			states[i] = queue.Scheduled
		default:
			states[i] = queue.Queued
		}
		a.Recipients = append(a.Recipients, AcceptedRecipient{to.Address, to.Kind, states[i], string(to.Suppressed)})
	}
	a.Status = queue.MessageState(states)
	return a
}

func (r *row) messageInfo() queue.MessageInfo {
	return queue.MessageInfo{
		Account: r.account, Domain: r.domain, API: r.isFromAPI(), Forwarded: r.forwarder != 0, Private: r.private, MessageID: r.messageID, ThreadID: r.thread, Metadata: json.RawMessage(r.metadata),
		Tags: r.tags,
	}
}

// isFromAPI reports whether the message was sent through the API, or by SMTP with an API key.
func (r *row) isFromAPI() bool { return r.mailbox == 0 && r.forwarder == 0 }
