// SPDX-License-Identifier: Apache-2.0

package queue

import (
	"time"

	"github.com/mailstead/mailstead/internal/queue/dispatch"
	"github.com/mailstead/mailstead/internal/smtpclient"
)

// State is the state of a delivery.
type State string

// The states of a delivery. Sending is never stored: it stands for a leased delivery.
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

// Final reports whether no more attempts follow. A late report may still turn delivered into
// bounced or complained, and a retry failed into queued.
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

// Delivery is a delivery that this node has leased.
type Delivery struct {
	dispatch.Entry // its identity, and what the dispatcher knows of it

	Recipient string // as for RCPT TO
	Kind      string // to, cc, bcc; envelope (submission)
	Attempts  int    // number of earlier attempts
	ExpiresAt time.Time
	Notify    smtpclient.Notify // NOTIFY of the RCPT command; 0: none
	Original  string            // ORCPT, decoded; "" for none

	offersUnsubscribe bool  // whether the message has an unsubscribe link
	state             State // state in the row
	sequence          int
	due               time.Time
	lastOutcome       Outcome           // last attempt, as in the row
	senderNotify      smtpclient.Notify // NOTIFY of the sender, for notices by this service
	requeues          int               // number of times in a row that it was put back untried
	// checkedAt is when the row was last known to be leased and open; zero: check it.
	checkedAt time.Time
}

// expiredOutcome returns the outcome of an expired delivery.
func (d *Delivery) expiredOutcome() Outcome {
	o := d.lastOutcome
	o.State, o.Enhanced, o.Stage = Bounced, "4.4.7", "expired"
	if o.Reply == "" {
		o.Reply = "no attempt was possible"
	}
	o.Reply = "The message could not be delivered in time; the last answer was: " + o.Reply
	return o
}

// Outcome is the result of an attempt for one recipient.
type Outcome struct {
	// State is Delivered, Deferred, Bounced (a final rejection) or Failed (a fault of this
	// service). Queued puts the delivery back as untried, for another attempt at once: the
	// connection turned out to be closed, or the host takes no more recipients in this transaction.
	State State

	Code     int    // reply code; 0 if no server replied
	Enhanced string // enhanced status code, for example 5.1.1; "" if unknown
	Reply    string // text of the reply, or a local reason
	Stage    string // stage of the SMTP session (smtpclient.Stage), or "dns", "local"

	// Remote is the source of the reply as the API shows it: a host name, "local" or "sandbox"; ""
	// means Host. Via is "relay" for a smart host.
	Remote, Via   string
	Host, IP, TLS string // "" if there was no connection

	// RemoteDSN reports whether the host will send its own delivery reports to the sender (RFC
	// 3461).
	RemoteDSN bool
	// Forwarded reports whether the recipient has no mailbox here and the message was forwarded.
	Forwarded bool

	Transcript string        // the SMTP session; the first 64 KiB are stored
	StartedAt  time.Time     // zero: when Next returned the transaction
	Duration   time.Duration // 0: until now
	// RetryAfter, with Deferred, is the minimum wait before the next attempt; 0 leaves it to the
	// schedule.
	RetryAfter time.Duration
}
