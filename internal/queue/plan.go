// SPDX-License-Identifier: Apache-2.0

package queue

import (
	"time"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/signal"
	"github.com/mailstead/mailstead/internal/smtpclient"
	"github.com/mailstead/mailstead/internal/suppression"
)

// Message is what the queue must know of a message to accept it.
type Message struct {
	About
	ID        db.ID
	DueAt     time.Time // scheduled until then; zero or past: at once
	ExpiresAt time.Time // bounced when not delivered by then
	Offers    bool      // to unsubscribe: it does not go to those who did so before it is due
	// Tells says that its sender is told what becomes of it by a mail into a
	// mailbox here (RFC 3461), as the NOTIFY of each recipient asks.
	Tells bool
}

// Recipient is one of a message's recipients.
type Recipient struct {
	Address     string // as for RCPT TO
	Kind        string // to, cc, bcc; envelope: may share a transaction with others
	Destination string // the address's domain: A-labels, lower case
	// Suppressed, if set, is why the recipient gets nothing: the delivery
	// begins, and ends, as suppressed.
	Suppressed suppression.Reason
	// Notify and Original are NOTIFY (0: not given) and ORCPT (as
	// "rfc822;a@b", decoded; "" for none), for the hosts that it goes to.
	Notify   smtpclient.Notify
	Original string
}

// Plan is the acceptance of a message: its deliveries, with places reserved in
// the windows of their destinations as far as there is room. Exactly one of
// Committed, Abandon and Drop must be called.
type Plan struct {
	q      *Queue
	m      Message
	at     time.Time
	rows   []planned
	tenure db.ID // under which the rows were inserted last; 0: nobody's
}

type planned struct {
	Recipient
	state State
	due   time.Time
	hand  *Delivery // nil if it found no place
	hold  db.ID     // that it waits under; 0 for none
}

var insertDelivery = db.SQL(`INSERT INTO delivery (message, n, account, recipient, kind, destination, state, due_at, expires_at,
		tenure, attempts, sequence, code, enhanced, reply, remote, updated_at, notify, orcpt, late_at, offers, hold, held_at)
	VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, 0, $11, 0, '', $13, '', $12, $14, $15, $16, $17, $18, $12)`)

// Plan reserves places for a message's deliveries. It does no I/O.
func (q *Queue) Plan(m Message, rcpts []Recipient) *Plan {
	now := q.o.Now()
	p := &Plan{q: q, m: m, at: now, rows: make([]planned, len(rcpts))}
	scheduled := m.DueAt.After(now)
	q.mu.Lock()
	defer q.mu.Unlock()
	_, able := q.able()
	for n, r := range rcpts {
		row := &p.rows[n]
		row.Recipient, row.state, row.due = r, Queued, now
		switch {
		case r.Suppressed != "":
			continue
		case scheduled:
			row.state, row.due = Scheduled, m.DueAt
		}
		if row.hold = q.standing.holds(r.Destination, m.Account); row.hold != 0 || scheduled {
			continue
		}
		d := q.dest(r.Destination)
		if now.Before(d.until) {
			row.due = d.until
		} else if able && q.admits(d) && q.roomFor(m.Account) {
			row.hand = &Delivery{
				Message: m.ID, N: n, Account: m.Account, Recipient: r.Address, Kind: r.Kind, Destination: r.Destination,
				ExpiresAt: m.ExpiresAt, Notify: r.Notify, Original: r.Original, tells: p.tells(r),
				state: Queued, due: now, dest: d, seen: now,
			}
			q.admit(row.hand)
		}
		q.tidy(d)
	}
	return p
}

// admits reports whether new mail finds a place. While older mail waits in
// rows, half of the window is kept for that.
func (q *Queue) admits(d *destination) bool {
	room := q.room(d)
	if d.waits {
		room -= q.o.Window / 2
	}
	return room > 0
}

// admit gives a delivery a place.
func (q *Queue) admit(d *Delivery) {
	q.hold(d.dest, 1)
	q.sender(d.Account).held++
	q.hand[d.place()] = d
	q.mails.hold(d.Message)
}

// Suppress says why a recipient gets nothing, as far as only the accept's job
// finds that out: call it in its Apply, before Queue. "" is for one who gets it.
func (p *Plan) Suppress(n int, why suppression.Reason) { p.rows[n].Suppressed = why }

// Queue adds the statements that insert the deliveries, and the events of
// suppressed ones, to the accept's job. It may run more than once.
func (p *Plan) Queue(b *db.Batch) {
	q := p.q
	q.mu.Lock()
	tenure, able := q.able()
	q.mu.Unlock()
	if p.tenure = tenure; !able {
		p.tenure = 0
	}
	for n := range p.rows {
		row := &p.rows[n]
		if row.Suppressed != "" {
			p.queueSuppressed(b, n)
			continue
		}
		var owner any
		switch {
		case row.hold != 0:
			owner = 0
		case row.hand != nil && p.tenure != 0:
			owner = p.tenure
		}
		b.Queue(p.insert(n, row.state, row.due, owner, 0, "", row.hold))
	}
}

// queueSuppressed inserts a delivery that ends as it begins.
func (p *Plan) queueSuppressed(b *db.Batch, n int) {
	row := &p.rows[n]
	reply := suppressedReply(row.Suppressed)
	data := statusData{About: p.m.About, ID: p.m.ID, Recipient: row.Address, Status: Suppressed, Reply: reply, Reason: row.Suppressed.Told()}
	if also, err := p.q.prepare(data.events(nil)); err == nil { // its data is plain text
		b.Queue(also[0])
	}
	b.Queue(p.insert(n, Suppressed, p.at, nil, 1, reply, 0))
}

func (p *Plan) insert(n int, state State, due time.Time, owner any, sequence int, reply string, hold db.ID) db.Statement {
	row := &p.rows[n]
	return insertDelivery.With(p.m.ID, n, p.m.Account, row.Address, row.Kind, row.Destination, string(state),
		db.Micros(due), db.Micros(p.m.ExpiresAt), owner, sequence, db.Micros(p.at), reply,
		int(row.Notify)|int(p.tells(row.Recipient))<<tellsShift, row.Original, db.Micros(p.lateAt(row.Recipient)), p.m.Offers, hold)
}

// Committed hands the deliveries that have a place to their couriers. Call it
// after the job's commit; it may be the job's AfterCommit.
func (p *Plan) Committed() {
	q := p.q
	tell := false
	q.mu.Lock()
	for n := range p.rows {
		row := &p.rows[n]
		switch {
		case row.Suppressed != "":
			tell = true
			if row.hand != nil {
				q.forget(row.hand)
			}
		case row.hold != 0:
		case row.state == Scheduled:
			q.wakeAt(row.due)
		case row.hand != nil && p.tenure != 0:
			row.hand.tenure = p.tenure
			q.push(row.hand)
			q.start(row.hand.dest)
		default:
			if row.hand != nil {
				q.forget(row.hand)
			}
			q.left(q.dest(row.Destination))
		}
	}
	q.mu.Unlock()
	if tell {
		q.o.Events.Wake()
	}
}

// left notes that rows wait for a destination, and tells other nodes, which
// may have room.
func (q *Queue) left(d *destination) {
	waited := d.waits
	q.await(d)
	if !waited {
		q.o.Hub.Wake(signal.Key{Kind: signal.Queue})
	}
	q.fill(d)
}

// Abandon gives the places back. Call it when the job failed.
func (p *Plan) Abandon() {
	p.Drop()
	q := p.q
	q.mu.Lock()
	defer q.mu.Unlock()
	q.doubts() // the commit's outcome may be unknown
}

// Drop is Abandon for a plan whose statements were surely not committed.
func (p *Plan) Drop() {
	q := p.q
	q.mu.Lock()
	defer q.mu.Unlock()
	for n := range p.rows {
		if d := p.rows[n].hand; d != nil {
			q.forget(d)
		}
	}
}
