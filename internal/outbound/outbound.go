// SPDX-License-Identifier: Apache-2.0

// Package outbound accepts mail that an account sends through the API, or that a mailbox submits
// over SMTP. It checks every rule, composes the message, and commits it together with its
// deliveries; only then is it accepted.
package outbound

import (
	"context"
	"encoding/json"
	"slices"
	"time"

	"github.com/mailstead/mailstead/internal/account"
	"github.com/mailstead/mailstead/internal/blob"
	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/domain"
	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/idempotency"
	"github.com/mailstead/mailstead/internal/mailbox"
	"github.com/mailstead/mailstead/internal/notify"
	"github.com/mailstead/mailstead/internal/queue"
	"github.com/mailstead/mailstead/internal/quota"
	"github.com/mailstead/mailstead/internal/secret"
	"github.com/mailstead/mailstead/internal/stat"
	"github.com/mailstead/mailstead/internal/suppression"
	"github.com/mailstead/mailstead/internal/template"
	"github.com/mailstead/mailstead/internal/thread"
)

// Outbox accepts messages and shows their status.
type Outbox struct {
	DB           *db.DB
	Node         *db.Node
	Blobs        *blob.Store
	Queue        *queue.Queue
	Suppressions *suppression.List
	Threads      *thread.Threads
	Accounts     *account.Accounts
	Domains      *domain.Domains
	Mailboxes    *mailbox.Mailboxes
	Templates    *template.Templates // for submissions, like Keys
	Stats        *stat.Stats
	Keys         *idempotency.Keys // for submissions; the API has its own
	Limits       *quota.Limiter
	Key          *secret.Key
	Host         string // the service's own name; domains without return paths of their own use bounces.HOST
	Now          func() time.Time
	// SignSlots limits, by its capacity, how many messages are signed at the same time, so that
	// sending a backlog doesn't take CPU time from accepting mail; nil: no limit. ExtraSignSlots
	// are additional slots for times when accepting isn't busy.
	SignSlots, ExtraSignSlots chan struct{}

	loadGauge   notify.LoadGauge // load of accepting; signing and indexing yield to it
	pruneCursor pruneCursor
}

// How long delivery is tried. RFC 5321 §4.5.4.1 requires at least 4–5 days for people's mail; an
// application prefers to know sooner.
const (
	ExpiryAPI        = 72 * time.Hour
	ExpirySubmission = 5 * 24 * time.Hour
)

// row is an outbound message as stored.
type row struct {
	id, account, domain, mailbox, blob db.ID
	sender, returnPathHost             string
	from, subject, messageID, thread   string
	metadata                           string
	ret, envid                         string // from a submission (RFC 3461)
	requireTLS                         string // from a submission (RFC 8689): tlsRequired, tlsOptional or ""
	reference                          int64  // see setReference; write only
	onlyDomain                         db.ID  // the only domain whose messages it may answer; 0: any; not stored
	addedFields                        []byte // fields to add to a submission; not stored
	template                           db.ID  // template it was made from; 0 for none
	forwarder                          db.ID  // the alias through which it came; 0: sent from here
	private                            bool   // only the recipient may read it
	templateVersion                    int
	utf8, eightBit                     bool
	size                               int64
	expires, created                   time.Time
}

// rowColumns are the columns that a row is scanned from.
const rowColumns = `id, account, domain, mailbox, sender, returns_to, header_from, subject, message_id,
			thread_id, metadata, utf8, eight_bit, size, blob, expires_at, created_at, ret, envid, template, template_version, require_tls, forwarded, private`

var (
	insertMessageQuery = db.SQL(`INSERT INTO outbound_message (id, account, domain, mailbox, sender, returns_to, header_from, subject, message_id,
			thread_id, metadata, utf8, eight_bit, size, blob, expires_at, created_at, ret, envid, reference, template, template_version, require_tls, forwarded, private)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21, $22, $23, $24, $25)`)
	messageByIDQuery = db.SQL(`SELECT ` + rowColumns + ` FROM outbound_message WHERE id = $1`)
)

func (r *row) insertStatement() db.Statement {
	return insertMessageQuery.With(r.id, r.account, r.domain, r.mailbox, r.sender, r.returnPathHost, r.from, r.subject, r.messageID,
		r.thread, r.metadata, r.utf8, r.eightBit, r.size, r.blob, db.Micros(r.expires), db.Micros(r.created), r.ret, r.envid, r.reference,
		r.template, r.templateVersion, r.requireTLS, r.forwarder, r.private)
}

func scanMessage(r db.Row) (*row, error) {
	m := &row{}
	var expires, created int64
	err := r.Scan(&m.id, &m.account, &m.domain, &m.mailbox, &m.sender, &m.returnPathHost, &m.from, &m.subject, &m.messageID,
		&m.thread, &m.metadata, &m.utf8, &m.eightBit, &m.size, &m.blob, &expires, &created, &m.ret, &m.envid,
		&m.template, &m.templateVersion, &m.requireTLS, &m.forwarder, &m.private)
	m.expires, m.created = db.Time(expires), db.Time(created)
	return m, err
}

// Message is an outbound message as its account sees it.
type Message struct {
	ID         db.ID
	Domain     db.ID // sending or forwarding domain
	Mailbox    db.ID // mailbox that submitted it; 0 for the API
	From       string
	Subject    string
	MessageID  string
	ThreadID   string
	Metadata   json.RawMessage
	Size       int64
	Status     queue.State
	Deliveries []queue.DeliveryStatus
	Template   db.ID // template it was made from; 0 for none
	// TemplateVersion is the version of Template.
	TemplateVersion int
	SendAt          time.Time // while it is scheduled; otherwise zero
	CreatedAt       time.Time
	Forwarded       bool // received from outside and forwarded
	Redacted        bool // Redact removed fields
}

// Redact returns the message for a caller who may not read mail: a forwarded message loses its
// author and its subject.
func (m Message) Redact() Message {
	if m.Forwarded {
		m.From, m.Subject, m.Redacted = "", "", true
	}
	return m
}

// Get returns a message of an account with its deliveries, or fault.NotFound.
func (o *Outbox) Get(ctx context.Context, account, id db.ID) (Message, error) {
	r, err := o.loadOwned(ctx, account, id)
	if err != nil {
		return Message{}, err
	}
	return o.toMessage(ctx, r)
}

func (o *Outbox) loadOwned(ctx context.Context, account, id db.ID) (*row, error) {
	found, err := db.All(ctx, o.DB, messageByIDQuery.With(id), scanMessage)
	if err != nil {
		return nil, err
	}
	if len(found) == 0 || found[0].account != account {
		return nil, fault.New(fault.NotFound, "not_found", "There is no message with this id.")
	}
	return found[0], nil
}

func (o *Outbox) toMessages(ctx context.Context, rows []*row) (list []Message, err error) {
	list = make([]Message, 0, len(rows))
	for some := range slices.Chunk(rows, queue.MaxDeliveriesOf) {
		ids := make([]db.ID, len(some))
		for i, r := range some {
			ids[i] = r.id
		}
		deliveries, err := o.Queue.DeliveriesOf(ctx, ids)
		if err != nil {
			return nil, err
		}
		for _, r := range some {
			list = append(list, r.toMessage(deliveries[r.id]))
		}
	}
	return list, nil
}

func (o *Outbox) toMessage(ctx context.Context, r *row) (Message, error) {
	deliveries, err := o.Queue.Deliveries(ctx, r.id)
	return r.toMessage(deliveries), err
}

func (r *row) toMessage(deliveries []queue.DeliveryStatus) Message {
	states := make([]queue.State, len(deliveries))
	var at time.Time
	for i, d := range deliveries {
		states[i] = d.State
		if d.State == queue.Scheduled {
			at = d.DueAt
		}
	}
	return Message{
		Status: queue.MessageState(states), SendAt: at,
		ID: r.id, Domain: r.domain, Mailbox: r.mailbox, From: r.from, Subject: r.subject, MessageID: r.messageID, ThreadID: r.thread,
		Metadata: json.RawMessage(r.metadata), Size: r.size, Deliveries: deliveries, CreatedAt: r.created,
		Template: r.template, TemplateVersion: r.templateVersion, Forwarded: r.forwarder != 0,
	}
}

// Attempts returns the attempts of a message's deliveries, each with its SMTP conversation, or
// fault.NotFound.
func (o *Outbox) Attempts(ctx context.Context, account, id db.ID) ([]queue.Attempt, error) {
	if _, err := o.Get(ctx, account, id); err != nil {
		return nil, err
	}
	return o.Queue.Attempts(ctx, id)
}
