// SPDX-License-Identifier: Apache-2.0

package queue

import (
	"time"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/smtpclient"
)

// State is where a delivery stands.
type State string

// The states. Sending is never stored: a delivery is sending while its node
// has it in hand.
const (
	Scheduled  State = "scheduled"
	Queued     State = "queued"
	Sending    State = "sending"
	Deferred   State = "deferred"
	Delivered  State = "delivered"
	Bounced    State = "bounced"
	Complained State = "complained"
	Suppressed State = "suppressed"
	Failed     State = "failed"
	Cancelled  State = "cancelled"
)

// Final reports whether nothing more will be tried. A late report may still
// turn delivered into bounced or complained, and a retry failed into queued.
func (s State) Final() bool {
	switch s {
	case Scheduled, Queued, Sending, Deferred:
		return false
	}
	return true
}

// Valid reports whether s is one of the states.
func (s State) Valid() bool { return s.Indexed() || s == Queued || s == Sending || s == Delivered }

// kindEnvelope marks recipients that may share a transaction.
const kindEnvelope = "envelope"

// Delivery is a delivery that this node has in hand.
type Delivery struct {
	Message     db.ID
	N           int // 0…, in the order of recipients
	Account     db.ID
	Recipient   string // as for RCPT TO
	Kind        string // to, cc, bcc; envelope (submission)
	Destination string
	Attempts    int // before this one
	ExpiresAt   time.Time
	Notify      smtpclient.Notify // as given; 0: not
	Original    string            // ORCPT, decoded; "" for none

	offersUnsubscribe bool  // to unsubscribe
	state             State // as in the row
	sequence          int
	due               time.Time
	lastOutcome       Outcome // what the row says of the last attempt
	lease             db.ID
	senderNotify      smtpclient.Notify // what its sender is told by us
	requeues          int               // how often it was put back untried

	dest      *destination
	checkedAt time.Time // when its row was known to be ours and open; zero: look
	inFlight  bool      // a courier has it, or its outcome is being written
	preempted bool      // it gives its place away: that is being written
}

func (d *Delivery) key() deliveryKey { return deliveryKey{d.Message, d.N} }

// expiredOutcome is the outcome of a delivery whose time is over.
func (d *Delivery) expiredOutcome() Outcome {
	o := d.lastOutcome
	o.State, o.Enhanced, o.Stage = Bounced, "4.4.7", "expired"
	if o.Reply == "" {
		o.Reply = "no attempt was possible"
	}
	o.Reply = "The message could not be delivered in time; the last answer was: " + o.Reply
	return o
}

// Outcome is what an attempt brought for one recipient.
type Outcome struct {
	// State is Delivered, Deferred, Bounced (a final refusal) or Failed (our
	// own fault). Queued puts the delivery back as untried, to be taken again
	// at once: for a connection that turned out to be closed, or a host that
	// takes no more recipients in this transaction.
	State State

	Code     int    // of the reply; 0 if no server gave one
	Enhanced string // such as 5.1.1; "" if unknown
	Reply    string // the reply's text, or our own reason
	Stage    string // where in the conversation (smtpclient.Stage), or "dns", "local"

	// Remote is who gave the reply as the API shows it: a host's name,
	// "local" or "sandbox"; "" means Host. Via is "relay" for a smart host.
	Remote, Via   string
	Host, IP, TLS string // "" if there was no connection

	// RemoteDSN says that the host reports to the sender by itself from here on
	// (RFC 3461).
	RemoteDSN bool
	// Forwarded says that the recipient has no mailbox here, and led elsewhere.
	Forwarded bool

	Transcript string        // the conversation; only its first 64 KiB are kept
	StartedAt  time.Time     // zero: when the consignment was taken
	Duration   time.Duration // 0: until now
	// RetryAfter, with Deferred, is the earliest next attempt; 0 leaves it to the
	// schedule.
	RetryAfter time.Duration
}
