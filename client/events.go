// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"encoding/json"
	"iter"
	"net/url"
	"strings"
	"time"
)

// Types of events.
const (
	EventInboundEmail      = "inbound_email"
	EventDeliveryStatus    = "delivery_status"
	EventBounce            = "bounce"
	EventComplaint         = "complaint"
	EventUnsubscribe       = "unsubscribe"
	EventDomainVerified    = "domain_verified"
	EventMailboxCreated    = "mailbox_created"
	EventMigrationComplete = "migration_complete"
	EventRateLimitWarning  = "rate_limit_warning"
	// AllEvents subscribes a webhook to all types, including future ones.
	AllEvents = "all"
)

// Event is an event. Webhooks receive it with the same id and data.
type Event struct {
	ID        string          `json:"id"`
	Type      string          `json:"type"` // such as EventBounce
	Timestamp time.Time       `json:"timestamp"`
	Version   int             `json:"version"` // version of Data's schema
	AccountID string          `json:"account_id"`
	Data      json.RawMessage `json:"data"` // object; its members depend on the type
}

// EventFilter selects events; the zero value selects all.
type EventFilter struct {
	Types     []string // only these types
	MessageID string   // only for the sent message with this id
	Recipient string   // only for this address
	DomainID  string   // only for this domain
	MailboxID string   // only for this mailbox
	Tags      []string // only for sent messages with one of these tags, at most 10

	// Time of the event; not for streams.
	CreatedAfter  time.Time // inclusive
	CreatedBefore time.Time // exclusive
}

func (f EventFilter) query() url.Values {
	q := url.Values{}
	set(q, "type", strings.Join(f.Types, ","))
	set(q, "message", f.MessageID)
	set(q, "recipient", f.Recipient)
	set(q, "domain_id", f.DomainID)
	set(q, "mailbox_id", f.MailboxID)
	set(q, "tag", strings.Join(f.Tags, ","))
	for name, t := range map[string]time.Time{"created_after": f.CreatedAfter, "created_before": f.CreatedBefore} {
		if !t.IsZero() {
			q.Set(name, t.UTC().Format(time.RFC3339Nano))
		}
	}
	return q
}

// ListEvents returns a page of events, newest first.
func (c *Client) ListEvents(ctx context.Context, f EventFilter, p Paging) (*Page[Event], error) {
	return list[Event](ctx, c, "/events", f.query(), p)
}

// Events iterates over all matching events, newest first. It stops after an error.
func (c *Client) Events(ctx context.Context, f EventFilter) iter.Seq2[Event, error] {
	return walk(func(p Paging) (*Page[Event], error) { return c.ListEvents(ctx, f, p) })
}

// Decode decodes the event's data into v: a pointer to [DeliveryStatusData], [BounceData],
// [ComplaintData], [UnsubscribeData], [InboundData], [DomainVerifiedData], [MailboxCreatedData],
// [MigrationData], [RateLimitWarningData], or a type of your own.
func (e Event) Decode(v any) error { return json.Unmarshal(e.Data, v) }

// MessageData is the common data of all events about a sent message.
type MessageData struct {
	ID        string          `json:"id"`         // message id
	MessageID string          `json:"message_id"` // header field, with angle brackets
	ThreadID  string          `json:"thread_id"`
	Metadata  json.RawMessage `json:"metadata"` // as given in the send
	Tags      []string        `json:"tags"`
	Recipient string          `json:"recipient"`
	Sequence  int             `json:"sequence"` // increases by one with each event of a delivery
	Test      bool            `json:"test"`     // test event of a webhook: it didn't happen
}

// DeliveryStatusData is the data of an event delivery_status.
type DeliveryStatusData struct {
	MessageData
	Status        State      `json:"status"`
	Attempts      int        `json:"attempts"`
	SMTPCode      int        `json:"smtp_code"`
	EnhancedCode  string     `json:"enhanced_code"`
	Diagnostic    string     `json:"diagnostic"` // last reply
	RemoteMTA     string     `json:"remote_mta"`
	Via           string     `json:"via"`    // relay: accepted by a smart host
	Reason        string     `json:"reason"` // why it was not attempted
	NextAttemptAt *time.Time `json:"next_attempt_at"`
}

// BounceData is the data of an event bounce.
type BounceData struct {
	MessageData
	Type         string `json:"type"` // Permanent, Transient or Undetermined
	Subtype      string `json:"subtype"`
	Category     string `json:"category"` // recipient or infrastructure
	SMTPCode     int    `json:"smtp_code"`
	EnhancedCode string `json:"enhanced_code"`
	Diagnostic   string `json:"diagnostic"`
	RemoteMTA    string `json:"remote_mta"`
}

// ComplaintData is the data of an event complaint.
type ComplaintData struct {
	MessageData
	FeedbackType string `json:"feedback_type"`
	Reporter     string `json:"reporter"`
}

// UnsubscribeData is the data of an event unsubscribe.
type UnsubscribeData struct {
	MessageData
	Method string `json:"method"` // link or email
}

// DomainVerifiedData is the data of an event domain_verified.
type DomainVerifiedData struct {
	DomainID   string    `json:"domain_id"`
	Name       string    `json:"name"`
	Status     string    `json:"status"`
	VerifiedAt time.Time `json:"verified_at"`
	Test       bool      `json:"test"` // test event of a webhook
}

// MailboxCreatedData is the data of an event mailbox_created.
type MailboxCreatedData struct {
	MailboxID   string `json:"mailbox_id"`
	DomainID    string `json:"domain_id"`
	Address     string `json:"address"`
	DisplayName string `json:"display_name"`
	Test        bool   `json:"test"` // test event of a webhook
}

// RateLimitWarningData is the data of an event rate_limit_warning.
type RateLimitWarningData struct {
	Name     string    `json:"name"`   // sends_per_hour, sends_per_day or recipients_per_day
	Window   string    `json:"window"` // hour or day
	Limit    int64     `json:"limit"`
	Used     int64     `json:"used"`
	ResetsAt time.Time `json:"resets_at"`
	APIKeyID *string   `json:"api_key_id"` // key whose limit it is; nil: the account's
	Test     bool      `json:"test"`       // test event of a webhook
}

// MigrationData is the data of an event migration_complete.
type MigrationData struct {
	ID         string    `json:"id"`
	MailboxID  string    `json:"mailbox_id"`
	DomainID   string    `json:"domain_id"`
	Status     string    `json:"status"`  // completed, failed or cancelled
	Folders    int       `json:"folders"` // number of folders read
	Copied     int64     `json:"copied"`  // number of messages
	Skipped    int64     `json:"skipped"` // messages that had been copied before
	Failed     int64     `json:"failed"`  // messages that could not be copied
	Bytes      int64     `json:"bytes"`
	FinishedAt time.Time `json:"finished_at"`
	Test       bool      `json:"test"` // test event of a webhook
}
