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

// parcel is a message on its way to its commit.
type parcel struct {
	place  int     // among the sends of the request
	letter *letter // nil for a submission
	sender domain.Sender
	row    *row
	blob   *blob.Blob
	to     []queue.Recipient
	due    time.Time // zero for at once
	offers bool      // to unsubscribe

	inquiry *suppression.Inquiry // of its commit; nil if its recipients were judged before
	asked   []address.Address    // the recipients, for that
}

// prepare makes the messages. Each step takes all of them, so that what it
// must look up it can look up at once.
//
// Between begin and compose stands what changes a message by what is known of
// others: its thread, and who of its recipients gets nothing. A message that
// comes alone finds the latter out in its commit, unless the answer is wanted
// before.
func (o *Outbox) prepare(ctx context.Context, p account.Principal, parcels []*parcel, now time.Time, answered bool) error {
	for _, pc := range parcels {
		o.begin(p.Account, pc, now)
		o.offer(pc)
	}
	if err := o.place(ctx, p, parcels); err != nil {
		return err
	}
	var err error
	if len(parcels) == 1 && !answered {
		err = o.inquire(parcels[0])
	} else {
		err = o.suppress(ctx, p.Account, parcels)
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

// begin gives a letter its row, its recipients, and its place in time.
func (o *Outbox) begin(account db.ID, pc *parcel, now time.Time) {
	l := pc.letter
	id := o.DB.NewID()
	pc.due = l.sendAt
	start := now
	if pc.due.After(now) {
		start = pc.due
	}
	pc.row = &row{
		id: id, account: account, domain: pc.sender.Domain, returnsTo: o.returnsTo(pc.sender),
		from: l.from.String(), subject: l.draft.Subject, messageID: "<" + id.String() + "@" + l.from.Domain + ">",
		thread: l.threadID, metadata: l.metadata, created: now, expires: start.Add(ExpiryAPI),
		template: l.template, templateVersion: l.version, private: l.class == ClassService,
	}
	l.draft.Date, l.draft.MessageID = start, pc.row.messageID
	if !l.feedback {
		l.draft.Extra = append(l.draft.Extra, o.feedbackID(account, l))
	}
	pc.to = envelope(l.recipients)
}

func envelope(recipients []recipient) []queue.Recipient {
	to := make([]queue.Recipient, len(recipients))
	for i, r := range recipients {
		to[i] = queue.Recipient{Address: r.String(), Kind: r.kind, Destination: r.Domain, Notify: r.notify, Original: r.original}
	}
	return to
}

// returnsTo is where bounces of API mail go: to the From domain itself where
// its MX and SPF are ours, so that SPF aligns (RFC 7489 §3.1.2), else to us.
func (o *Outbox) returnsTo(s domain.Sender) string {
	if s.Aligned {
		return s.Name
	}
	return "bounces." + o.Host
}

// compose writes the message into a blob.
func (o *Outbox) compose(ctx context.Context, pc *parcel) error {
	w := o.Blobs.Create(ctx)
	defer w.Abort()
	composed, err := message.Compose(w, &pc.letter.draft)
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
func (o *Outbox) discard(ctx context.Context, parcels []*parcel) {
	for _, pc := range parcels {
		if pc.blob != nil {
			pc.blob.Discard(ctx)
		}
	}
}

// commit writes messages, their bytes and their deliveries in one commit.
// guard, if not nil, queues what decides about it.
func (o *Outbox) commit(ctx context.Context, account db.ID, parcels []*parcel, guard func(*db.Batch)) error {
	if len(parcels) == 0 && guard == nil {
		return nil
	}
	plans := make([]*queue.Plan, len(parcels))
	for i, pc := range parcels {
		plans[i] = o.plan(pc)
	}
	err := o.DB.Write(ctx, account, &db.Job{
		Guard: func(batch *db.Batch) {
			if guard != nil {
				guard(batch)
			}
			for _, pc := range parcels {
				if pc.inquiry != nil {
					pc.inquiry.Queue(batch)
				}
			}
		},
		Apply: func(batch *db.Batch) {
			for i, pc := range parcels {
				if pc.inquiry != nil {
					pc.mark(plans[i])
				}
				pc.queue(batch, plans[i])
			}
		},
		AfterCommit: func() {
			for _, plan := range plans {
				plan.Committed()
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

// plan reserves places for a parcel's deliveries.
func (o *Outbox) plan(pc *parcel) *queue.Plan {
	return o.Queue.Plan(queue.Message{
		About: pc.row.about(), ID: pc.row.id, DueAt: pc.due, ExpiresAt: pc.row.expires, Offers: pc.offers, Tells: pc.row.tells(),
	}, pc.to)
}

// queue adds the rows of a parcel to a batch.
func (pc *parcel) queue(b *db.Batch, plan *queue.Plan) {
	b.Queue(pc.blob.Insert())
	b.Queue(pc.row.insert())
	plan.Queue(b)
}

// accepted is the answer to a send that will be committed, or was.
func (pc *parcel) accepted() Accepted {
	r := pc.row
	a := Accepted{
		ID: r.id, MessageID: r.messageID, ThreadID: r.thread, Metadata: json.RawMessage(r.metadata),
		SendAt: pc.due, CreatedAt: r.created,
	}
	states := make([]queue.State, len(pc.to))
	for i, to := range pc.to {
		switch {
		case to.Suppressed != "":
			states[i] = queue.Suppressed
		case pc.due.After(r.created):
			states[i] = queue.Scheduled
		default:
			states[i] = queue.Queued
		}
		a.Recipients = append(a.Recipients, AcceptedRecipient{to.Address, to.Kind, states[i], to.Suppressed.Told()})
	}
	a.Status = queue.Status(states)
	return a
}

func (r *row) about() queue.About {
	return queue.About{
		Account: r.account, Domain: r.domain, API: r.api(), Forwarded: r.forwarded != 0, Private: r.private, MessageID: r.messageID, ThreadID: r.thread, Metadata: json.RawMessage(r.metadata),
	}
}

// api reports whether the API sent it, or the SMTP user of the API.
func (r *row) api() bool { return r.mailbox == 0 && r.forwarded == 0 }
