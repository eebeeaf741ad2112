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
)

// preparedMessage is a message on its way to its commit.
type preparedMessage struct {
	index             int        // among the sends of the request
	send              *validSend // nil for a submission
	sender            domain.SendingDomain
	row               *row
	blob              *blob.Blob
	recipients        []queue.Recipient
	sendAt            time.Time // zero for at once
	offersUnsubscribe bool      // to unsubscribe

	suppressionCheck *suppression.Check // of its commit; nil if its recipients were judged before
	checkedAddresses []address.Address  // the recipients, for that
}

// prepare makes the messages. Each step takes all of them, so that what it
// must look up it can look up at once.
//
// Between begin and compose stands what changes a message by what is known of
// others: its thread, and who of its recipients gets nothing. A message that
// comes alone finds the latter out in its commit, unless the answer is wanted
// before.
func (o *Outbox) prepare(ctx context.Context, p account.Principal, parcels []*preparedMessage, now time.Time, answered bool) error {
	for _, pc := range parcels {
		o.initRow(p.Account, pc, now)
		o.addUnsubscribe(pc)
	}
	if err := o.assignThreads(ctx, p, parcels); err != nil {
		return err
	}
	var err error
	if len(parcels) == 1 && !answered {
		err = o.checkInCommit(parcels[0])
	} else {
		err = o.applySuppressions(ctx, p.Account, parcels)
	}
	if err != nil {
		return err
	}
	for _, pc := range parcels {
		if err := o.compose(ctx, pc); err != nil {
			o.discard(ctx, parcels)
			return err
		}
	}
	return nil
}

// initRow gives a letter its row, its recipients, and its place in time.
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
		from: l.from.String(), subject: l.draft.Subject, messageID: "<" + id.String() + "@" + l.from.Domain + ">",
		thread: l.threadID, metadata: l.metadata, created: now, expires: start.Add(ExpiryAPI),
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

// returnPathHost is where bounces of API mail go: to the From domain itself where
// its MX and SPF are ours, so that SPF aligns (RFC 7489 §3.1.2), else to us.
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

// discard removes what was composed and will never be committed.
func (o *Outbox) discard(ctx context.Context, parcels []*preparedMessage) {
	for _, pc := range parcels {
		if pc.blob != nil {
			pc.blob.Discard(ctx)
		}
	}
}

// commit writes messages, their bytes and their deliveries in one commit.
// guard, if not nil, queues what decides about it.
func (o *Outbox) commit(ctx context.Context, account db.ID, parcels []*preparedMessage, guard func(*db.Batch)) error {
	if len(parcels) == 0 && guard == nil {
		return nil
	}
	plans := make([]*queue.Reservation, len(parcels))
	for i, pc := range parcels {
		plans[i] = o.reserve(pc)
	}
	err := o.DB.Write(ctx, account, &db.Mutation{
		Guard: func(batch *db.Batch) {
			if guard != nil {
				guard(batch)
			}
			for _, pc := range parcels {
				if pc.suppressionCheck != nil {
					pc.suppressionCheck.AddStatements(batch)
				}
			}
		},
		Apply: func(batch *db.Batch) {
			for i, pc := range parcels {
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

// reserve reserves places for a parcel's deliveries.
func (o *Outbox) reserve(pc *preparedMessage) *queue.Reservation {
	return o.Queue.Reserve(queue.Message{
		MessageInfo: pc.row.messageInfo(), ID: pc.row.id, DueAt: pc.sendAt, ExpiresAt: pc.row.expires, OffersUnsubscribe: pc.offersUnsubscribe, NotifySender: pc.row.wantsReports(),
	}, pc.recipients)
}

// addStatements adds the rows of a parcel to a batch.
func (pc *preparedMessage) addStatements(b *db.Batch, plan *queue.Reservation) {
	b.Queue(pc.blob.InsertStatement())
	b.Queue(pc.row.insertStatement())
	plan.AddStatements(b)
}

// acceptedMessage is the answer to a send that will be committed, or was.
func (pc *preparedMessage) acceptedMessage() AcceptedMessage {
	r := pc.row
	a := AcceptedMessage{
		ID: r.id, MessageID: r.messageID, ThreadID: r.thread, Metadata: json.RawMessage(r.metadata),
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
		a.Recipients = append(a.Recipients, AcceptedRecipient{to.Address, to.Kind, states[i], to.Suppressed.EventReason()})
	}
	a.Status = queue.MessageState(states)
	return a
}

func (r *row) messageInfo() queue.MessageInfo {
	return queue.MessageInfo{
		Account: r.account, Domain: r.domain, API: r.isFromAPI(), Forwarded: r.forwarder != 0, Private: r.private, MessageID: r.messageID, ThreadID: r.thread, Metadata: json.RawMessage(r.metadata),
	}
}

// isFromAPI reports whether the API sent it, or the SMTP user of the API.
func (r *row) isFromAPI() bool { return r.mailbox == 0 && r.forwarder == 0 }
