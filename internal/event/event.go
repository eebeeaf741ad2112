// SPDX-License-Identifier: Apache-2.0

// Package event keeps what happened. An event is written in the transaction
// of what happened, without a place in the order: on PostgreSQL ids are not
// commit order, and a reader with a cursor over them would lose events. The
// sequencer numbers committed events afterwards, and everybody reads by that
// position, so each gets every event once.
package event

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/notify"
)

// The kinds of event that an application can subscribe to (interface
// specification, section 6).
const (
	InboundEmail      = "inbound_email"
	DeliveryStatus    = "delivery_status"
	Bounce            = "bounce"
	Complaint         = "complaint"
	DomainVerified    = "domain_verified"
	MailboxCreated    = "mailbox_created"
	MigrationComplete = "migration_complete"
	RateLimitWarning  = "rate_limit_warning"
)

// Kinds lists all of them.
var Kinds = [...]string{InboundEmail, DeliveryStatus, Bounce, Complaint, DomainVerified, MailboxCreated, MigrationComplete, RateLimitWarning}

// Input is an event about to be recorded.
type Input struct {
	Account db.ID
	Kind    string
	Message db.ID // the outbound message it is about; 0 for none
	Data    any   // becomes the JSON object `data`
	// What it is about, for those who ask for a part only; zero for none.
	Domain    db.ID  // of the sender, the mailbox, or itself
	Mailbox   db.ID  // that it happened to
	Recipient string // as address.Key of it
	Status    string // data.status, or "unsubscribed" where no state changed but that happened
	// ContentMessage is the message that arrived from which Log.LoadContent completes Data
	// when the event is first read; 0 if Data is complete.
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

	Domain         db.ID  `json:"-"` // as in Input, like what follows
	Mailbox        db.ID  `json:"-"`
	Message        db.ID  `json:"-"`
	Recipient      string `json:"-"`
	contentMessage db.ID
}

// Body is the event as JSON, the same bytes each time: what webhooks, streams
// and everybody else gets.
func (e *Event) Body() ([]byte, error) {
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	err := encoder.Encode(e)
	return bytes.TrimSuffix(text.Bytes(), []byte("\n")), err
}

// Log records and lists events. It wakes notify.EventStream of an account when its
// events got their positions.
type Log struct {
	DB   *db.DB
	Node *db.Node
	Hub  *notify.Hub
	Now  func() time.Time
	// LoadContent completes the data of an event with the content of the message
	// that it is about (Input.ContentMessage). It must return the same for the same
	// message, and something also for one that is gone.
	LoadContent func(ctx context.Context, message db.ID, data json.RawMessage) (any, error)
	// RemoveContent returns the data of an event for a reader who may not read mail:
	// nil, without an error, if nothing has to be left out. It must return the same for
	// an event whose content was completed and for one whose content was not.
	RemoveContent func(kind string, data json.RawMessage) (any, error)
	// OnNumbering are statements that the sequencer runs after each numbering, in
	// the same commit: for what has to follow at once. Each finds what is new
	// by a bookmark of its own, a position, which it advances there; only one
	// sequencer at a time is in that commit.
	OnNumbering []func(b *db.Batch)
	// AfterNumbering are called each time after that commit.
	AfterNumbering []func()

	pruning  sync.Mutex
	prunedTo int64 // the last position that this round of pruning deleted
}

var insertQuery = db.SQL(`INSERT INTO event (id, account, kind, message, data, content, created_at, domain, mailbox, recipient, status)
	VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)`)

func (l *Log) insertStatement(e Input) (db.Statement, error) {
	data, err := encode(e.Kind, e.Data)
	if err != nil {
		return db.Statement{}, err
	}
	return insertQuery.With(l.DB.NewID(), e.Account, e.Kind, e.Message, data, e.ContentMessage, db.Micros(l.Now()),
		e.Domain, e.Mailbox, e.Recipient, e.Status), nil
}

// encode makes the text of an event's data. Metadata comes back as it was
// given, so nothing is escaped for HTML.
func encode(kind string, v any) (string, error) {
	var data bytes.Buffer
	encoder := json.NewEncoder(&data)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(v); err != nil {
		return "", fmt.Errorf("writing the data of a %s event: %w", kind, err)
	}
	return strings.TrimSuffix(data.String(), "\n"), nil
}

// RecordStatement makes the statement that records e, for a job of a write lane: the
// same statement each time the job runs. The job's AfterCommit calls Wake.
func (l *Log) RecordStatement(e Input) (db.Statement, error) { return l.insertStatement(e) }

// Record writes e in the caller's transaction.
func (l *Log) Record(ctx context.Context, tx *db.Tx, e Input) error {
	s, err := l.insertStatement(e)
	if err != nil {
		return err
	}
	if _, err := tx.Exec(ctx, s); err != nil {
		return err
	}
	tx.AfterCommit(l.Wake)
	return nil
}

// Wake tells the sequencer that there is something to number.
func (l *Log) Wake() { l.Hub.Wake(notify.Key{Kind: notify.Event}) }

var eventQuery = db.SQL(`SELECT COALESCE(position, 0), id, kind, data, content, created_at, message, domain, mailbox, recipient FROM event
	WHERE id = $1 AND account = $2`)

// Get returns one event of an account, with or without the content of mail, or
// fault.NotFound. An event that has just been recorded may have no position yet (0).
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
		var at int64
		err := r.Scan(&e.Position, &e.ID, &e.Type, &data, &e.contentMessage, &at, &e.Message, &e.Domain, &e.Mailbox, &e.Recipient)
		e.Data, e.Timestamp = json.RawMessage(data), db.Time(at)
		return e, err
	}
}
