// SPDX-License-Identifier: Apache-2.0

// Package event stores events. An event is written without a position, in the transaction of the
// change that it reports. On PostgreSQL ids are not in commit order, so a reader with a cursor over
// ids would lose events. The sequencer numbers committed events afterwards, and all readers read by
// that position. So each gets every event once.
package event

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	"github.com/mailstead/mailstead/internal/apijson"
	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/lease"
	"github.com/mailstead/mailstead/internal/notify"
)

// The kinds of event that an application can subscribe to (interface
// specification, section 6).
const (
	InboundEmail      = "inbound_email"
	DeliveryStatus    = "delivery_status"
	Bounce            = "bounce"
	Complaint         = "complaint"
	Unsubscribe       = "unsubscribe"
	DomainVerified    = "domain_verified"
	MailboxCreated    = "mailbox_created"
	MigrationComplete = "migration_complete"
	RateLimitWarning  = "rate_limit_warning"
)

// Kinds lists all kinds of events.
var Kinds = [...]string{InboundEmail, DeliveryStatus, Bounce, Complaint, Unsubscribe, DomainVerified, MailboxCreated, MigrationComplete, RateLimitWarning}

// RecordParams is an event about to be recorded.
type RecordParams struct {
	Account db.ID
	Kind    string
	Message db.ID // outbound message of the event; 0 for none
	Data    any   // becomes the JSON object `data`
	// The subjects of the event, for filters; zero for none.
	Domain    db.ID  // domain of the sender or mailbox, or the domain itself
	Mailbox   db.ID  // mailbox of the event
	Recipient string // the recipient's address.Key
	Tags      string // tags of the sent message, as tag.Join returns them
	Status    string // data.status, if the event changes the state of its delivery
	// ContentMessage is the received message from which Log.LoadContent completes Data when the
	// event is first read; 0 if Data is complete.
	ContentMessage db.ID
}

// Event is a recorded event.
type Event struct {
	ID        db.ID           `json:"id"`
	Type      string          `json:"type"`
	Timestamp time.Time       `json:"timestamp"`
	Version   int             `json:"version"`
	Account   db.ID           `json:"account_id"`
	Data      json.RawMessage `json:"data"`
	Position  int64           `json:"-"`

	Domain         db.ID  `json:"-"` // this and the following fields as in Input
	Mailbox        db.ID  `json:"-"`
	Message        db.ID  `json:"-"`
	Recipient      string `json:"-"`
	Tags           string `json:"-"`
	contentMessage db.ID
}

// Body returns the event as JSON, the same bytes each time, for webhooks, streams and all other
// readers.
func (e *Event) Body() ([]byte, error) { return apijson.Marshal(e) }

// Log records and lists events. It wakes notify.EventStream of an account when its events got their
// positions.
type Log struct {
	DB   *db.DB
	Node *lease.Node
	Hub  *notify.Hub
	Now  func() time.Time
	// LoadContent completes an event's data with the content of its message (Input.ContentMessage).
	// It must return the same result for the same message, and a result also for a deleted one.
	LoadContent func(ctx context.Context, message db.ID, data json.RawMessage) (any, error)
	// RemoveContent returns the data of an event for a reader who may not read mail: nil, without
	// an error, if nothing must be removed. It must return the same result for an event with
	// content as for one without.
	RemoveContent func(kind string, data json.RawMessage) (any, error)
	// OnNumbering are functions that add statements. The sequencer runs them after each numbering,
	// in the same commit. Each function finds new events with its own stored position, and advances
	// that position. Only one sequencer at a time is in that commit.
	OnNumbering []func(b *db.Batch)
	// AfterNumbering are functions that the sequencer calls after each of these commits.
	AfterNumbering []func()

	pruning  sync.Mutex
	prunedTo int64 // last position that this round of pruning deleted
}

var insertQuery = db.SQL(`INSERT INTO event (id, account, kind, message, data, content, created_at, domain, mailbox, recipient, status, tags)
	VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)`)

func (l *Log) insertStatement(e RecordParams) (db.Statement, error) {
	data, err := encode(e.Kind, e.Data)
	if err != nil {
		return db.Statement{}, err
	}
	return insertQuery.With(l.DB.NewID(), e.Account, e.Kind, e.Message, data, e.ContentMessage, db.Micros(l.Now()),
		e.Domain, e.Mailbox, e.Recipient, e.Status, e.Tags), nil
}

// encode returns the JSON of an event's data.
func encode(kind string, v any) (string, error) {
	text, err := apijson.Marshal(v)
	if err != nil {
		return "", fmt.Errorf("writing the data of a %s event: %w", kind, err)
	}
	return string(text), nil
}

// RecordStatement returns the statement that records e, for a mutation of the write batcher: the
// same statement each time the mutation runs. The mutation's AfterCommit must call Wake.
func (l *Log) RecordStatement(e RecordParams) (db.Statement, error) { return l.insertStatement(e) }

// Record writes e in the caller's transaction.
func (l *Log) Record(ctx context.Context, tx *db.Tx, e RecordParams) error {
	s, err := l.insertStatement(e)
	if err != nil {
		return err
	}
	if err := tx.Run(ctx, s); err != nil {
		return err
	}
	tx.AfterCommit(l.WakeSequencer)
	return nil
}

// WakeSequencer wakes the sequencer to number new events.
func (l *Log) WakeSequencer() { l.Hub.Wake(notify.Key{Kind: notify.Event}) }

var eventQuery = db.SQL(`SELECT COALESCE(position, 0), id, kind, data, content, created_at, message, domain, mailbox, recipient, tags FROM event
	WHERE id = $1 AND account = $2`)

// Get returns one event of an account, with or without the content of mail, or a fault.NotFound. A
// new event may have no position yet (0).
func (l *Log) Get(ctx context.Context, account, id db.ID, content bool) (Event, error) {
	found, err := db.All(ctx, l.DB, eventQuery.With(id, account), scanEvent(account))
	if err != nil {
		return Event{}, err
	}
	if len(found) == 0 {
		return Event{}, fault.New(fault.NotFound, "not_found", "There is no event with this id.")
	}
	_, err = l.addContent(ctx, found, content)
	return found[0], err
}

func scanEvent(account db.ID) func(db.Row) (Event, error) {
	return func(r db.Row) (Event, error) {
		e := Event{Account: account, Version: 1}
		var data string
		err := r.Scan(&e.Position, &e.ID, &e.Type, &data, &e.contentMessage, db.TimeScanner(&e.Timestamp), &e.Message, &e.Domain, &e.Mailbox, &e.Recipient, &e.Tags)
		e.Data = json.RawMessage(data)
		return e, err
	}
}
