// SPDX-License-Identifier: Apache-2.0

package queue

import (
	"time"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/notify"
	"github.com/mailstead/mailstead/internal/queue/dispatch"
	"github.com/mailstead/mailstead/internal/smtpclient"
	"github.com/mailstead/mailstead/internal/suppression"
)

// Message is the data that the queue needs to accept a message.
type Message struct {
	MessageInfo
	ID                db.ID
	DueAt             time.Time // time of the first attempt; zero or past: at once
	ExpiresAt         time.Time // time at which an undelivered message bounces
	OffersUnsubscribe bool      // whether it has an unsubscribe link: recipients who unsubscribe before DueAt don't get it
	// NotifySender reports whether the sender gets delivery reports in a mailbox here (RFC 3461),
	// as the NOTIFY of each recipient asks.
	NotifySender bool
}

// Recipient is one of a message's recipients.
type Recipient struct {
	Address     string // as for RCPT TO
	Kind        string // to, cc, bcc; envelope: may share a transaction with others
	Destination string // the address's domain: A-labels, lower case
	// Suppressed, if set, is the reason why the recipient gets nothing: the delivery is inserted as
	// suppressed, which is final.
	Suppressed suppression.Reason
	// Notify and Original are NOTIFY (0: not given) and ORCPT (as "rfc822;a@b", decoded; "" for
	// none) for the target hosts.
	Notify   smtpclient.Notify
	Original string
}

// Reservation is a message that is being accepted: its deliveries, with slots in the windows of
// their destinations as far as slots are free. The caller must call exactly one of Dispatch,
// Abandon and Cancel.
type Reservation struct {
	q     *Queue
	m     Message
	at    time.Time
	rows  []reservedDelivery
	lease db.ID // lease of the inserted rows; 0: none
}

type reservedDelivery struct {
	Recipient
	state    State
	due      time.Time
	delivery *Delivery // nil if it got no slot
	hold     db.ID     // hold that applies; 0 for none
}

var insertDeliveryQuery = db.SQL(`INSERT INTO delivery (message, n, account, recipient, kind, destination, state, due_at, expires_at,
		lease, attempts, sequence, code, enhanced, reply, remote_host, updated_at, notify, orcpt, delay_report_at, offers_unsubscribe, hold, held_at)
	VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, 0, $11, 0, '', $13, '', $12, $14, $15, $16, $17, $18, $12)`)

// Reserve reserves slots for a message's deliveries. It does no I/O.
func (q *Queue) Reserve(m Message, rcpts []Recipient) *Reservation {
	now := q.o.Now()
	p := &Reservation{q: q, m: m, at: now, rows: make([]reservedDelivery, len(rcpts))}
	scheduled := m.DueAt.After(now)
	q.mu.Lock()
	defer q.mu.Unlock()
	for n, r := range rcpts {
		row := &p.rows[n]
		row.Recipient, row.state, row.due = r, Queued, now
		switch {
		case r.Suppressed != "":
			continue
		case scheduled:
			row.state, row.due = Scheduled, m.DueAt
		}
		if row.hold = q.holds.deliveryHold(r.Destination, m.Account); row.hold != 0 || scheduled {
			continue
		}
		ok, backoff := q.dispatch.MayAdmit(r.Destination, m.Account)
		switch {
		case !backoff.IsZero():
			row.due = backoff
		case ok:
			row.delivery = &Delivery{
				Entry:     dispatch.Entry{Message: m.ID, N: n, Account: m.Account, Destination: r.Destination, Shareable: r.Kind == kindEnvelope},
				Recipient: r.Address, Kind: r.Kind, ExpiresAt: m.ExpiresAt, Notify: r.Notify, Original: r.Original,
				senderNotify: p.senderNotify(r), state: Queued, due: now, checkedAt: now,
			}
			q.admit(row.delivery)
		}
	}
	return p
}

// admit takes a slot for a delivery. q.mu is held.
func (q *Queue) admit(d *Delivery) {
	q.dispatch.Admit(d)
	q.messages.retain(d.Message)
}

// Suppress sets the reason why a recipient gets nothing, for callers that learn it only in the
// accepting mutation. Call it in Apply, before AddStatements. "" means that the recipient gets the
// message.
func (p *Reservation) Suppress(n int, why suppression.Reason) { p.rows[n].Suppressed = why }

// AddStatements adds to the accepting mutation the statements that insert the deliveries, and the
// events of suppressed ones. It may run more than once.
func (p *Reservation) AddStatements(b *db.Batch) {
	q := p.q
	q.mu.Lock()
	leaseID, able := q.usableLease()
	q.mu.Unlock()
	if p.lease = leaseID; !able {
		p.lease = 0
	}
	for n := range p.rows {
		row := &p.rows[n]
		if row.Suppressed != "" {
			p.addSuppressed(b, n)
			continue
		}
		var owner any
		switch {
		case row.hold != 0:
			owner = 0
		case row.delivery != nil && p.lease != 0:
			owner = p.lease
		}
		b.Queue(p.insertStatement(n, row.state, row.due, owner, 0, "", row.hold))
	}
}

// addSuppressed inserts a delivery whose first state, suppressed, is final.
func (p *Reservation) addSuppressed(b *db.Batch, n int) {
	row := &p.rows[n]
	reply := suppressedReply(row.Suppressed)
	data := StatusChange{MessageInfo: p.m.MessageInfo, ID: p.m.ID, Recipient: row.Address, Status: Suppressed, Reply: reply, Reason: string(row.Suppressed)}
	if also, err := p.q.eventStatements(data.Events(nil)); err == nil { // its data is plain text
		b.Queue(also[0])
	}
	b.Queue(p.insertStatement(n, Suppressed, p.at, nil, 1, reply, 0))
}

func (p *Reservation) insertStatement(n int, state State, due time.Time, owner any, sequence int, reply string, hold db.ID) db.Statement {
	row := &p.rows[n]
	return insertDeliveryQuery.With(p.m.ID, n, p.m.Account, row.Address, row.Kind, row.Destination, string(state),
		db.Micros(due), db.Micros(p.m.ExpiresAt), owner, sequence, db.Micros(p.at), reply,
		int(row.Notify)|int(p.senderNotify(row.Recipient))<<senderNotifyShift, row.Original, db.Micros(p.delayNoticeAt(row.Recipient)), p.m.OffersUnsubscribe, hold)
}

// Dispatch queues the deliveries that have a slot for their sessions. Call it after the mutation's
// commit; it may be the mutation's AfterCommit.
func (p *Reservation) Dispatch() {
	q := p.q
	tell := false
	q.mu.Lock()
	for n := range p.rows {
		row := &p.rows[n]
		switch {
		case row.Suppressed != "":
			tell = true
			if row.delivery != nil {
				q.dispatch.Forget(row.delivery)
			}
		case row.hold != 0:
		case row.state == Scheduled:
			q.wakeAt(row.due)
		case row.delivery != nil && p.lease != 0:
			row.delivery.Lease = p.lease
			q.dispatch.Enqueue(row.delivery)
		default:
			if row.delivery != nil {
				q.dispatch.Forget(row.delivery)
			}
			q.announceBacklog(row.Destination)
		}
	}
	q.mu.Unlock()
	if tell {
		q.o.Events.WakeSequencer()
	}
}

// announceBacklog records that rows wait for a destination, and wakes other nodes, which may have
// free slots.
func (q *Queue) announceBacklog(destination string) {
	if q.dispatch.AddBacklog(destination) {
		q.o.Hub.Wake(notify.Key{Kind: notify.Queue})
	}
}

// Abandon returns the slots. Call it when the mutation failed.
func (p *Reservation) Abandon() {
	p.Cancel()
	q := p.q
	q.mu.Lock()
	defer q.mu.Unlock()
	q.markUncertain() // the commit's outcome may be unknown
}

// Cancel is like Abandon, for a reservation whose statements were certainly not committed.
func (p *Reservation) Cancel() {
	q := p.q
	q.mu.Lock()
	defer q.mu.Unlock()
	for n := range p.rows {
		if d := p.rows[n].delivery; d != nil {
			q.dispatch.Forget(d)
		}
	}
}
