// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"encoding/json"
	"io"
	"iter"
	"net/http"
	"time"
)

// Message is a sent or scheduled message, with the state of its deliveries.
type Message struct {
	ID         string          `json:"id"`
	MailboxID  string          `json:"mailbox_id"` // mailbox that submitted it; "" for the API
	Status     State           `json:"status"`     // first recipient state that is not final, else the worst
	From       string          `json:"from"`
	Subject    string          `json:"subject"`
	MessageID  string          `json:"message_id"` // header field, with angle brackets
	ThreadID   string          `json:"thread_id"`  // "" if it has none
	Metadata   json.RawMessage `json:"metadata"`
	Size       int64           `json:"size"`       // bytes of the whole message
	Recipients []Recipient     `json:"recipients"` // including blind copies
	SendAt     *time.Time      `json:"send_at"`    // while it is scheduled
	// TemplateID is the id of its template, and TemplateVersion the version; "" and 0 for none.
	TemplateID      string    `json:"template_id"`
	TemplateVersion int       `json:"template_version"`
	CreatedAt       time.Time `json:"created_at"`
	Omitted         bool      `json:"content_omitted"` // forwarded, and the key may not read mail: From and Subject are empty
}

// Recipient is a recipient of a message, with the state of the delivery.
type Recipient struct {
	Email         string     `json:"email"`
	Type          string     `json:"type"` // to, cc or bcc; envelope for mail submitted over SMTP
	Status        State      `json:"status"`
	Held          bool       `json:"held"`          // by an operator of the service, until released
	SMTPCode      int        `json:"smtp_code"`     // last reply's code; 0 if there was none
	EnhancedCode  string     `json:"enhanced_code"` // such as 5.1.1 (RFC 3463)
	Reply         string     `json:"reply"`         // last reply
	Remote        string     `json:"remote"`        // source of the reply: a host, local, or sandbox
	Attempts      int        `json:"attempts"`
	NextAttemptAt *time.Time `json:"next_attempt_at"` // nil unless it waits
	UpdatedAt     time.Time  `json:"updated_at"`
	Timeline      []Attempt  `json:"timeline"` // only from GetMessage
}

// Attempt is one attempt of a delivery.
type Attempt struct {
	Attempt      int       `json:"attempt"` // from 1; 0 for later information: a report, a complaint, an automatic reply (see Stage)
	At           time.Time `json:"at"`
	DurationMS   float64   `json:"duration_ms"`
	Outcome      State     `json:"outcome"`
	Host         string    `json:"host"`
	IP           string    `json:"ip"`
	TLS          string    `json:"tls"`   // version and cipher; "" for none
	Stage        string    `json:"stage"` // step of the SMTP session that decided the result
	SMTPCode     int       `json:"smtp_code"`
	EnhancedCode string    `json:"enhanced_code"`
	Reply        string    `json:"reply"`
	Transcript   string    `json:"transcript"` // of the SMTP session
}

// MessageFilter selects messages; the zero value selects all.
type MessageFilter struct{}

// ListMessages returns a page of sent messages, newest first: those of the API and those submitted
// by mailboxes.
func (c *Client) ListMessages(ctx context.Context, _ MessageFilter, p Paging) (*Page[Message], error) {
	return list[Message](ctx, c, "/outbound/messages", nil, p)
}

// Messages iterates over all matching sent messages, newest first. It stops after an error.
func (c *Client) Messages(ctx context.Context, f MessageFilter) iter.Seq2[Message, error] {
	return walk(func(p Paging) (*Page[Message], error) { return c.ListMessages(ctx, f, p) })
}

// GetMessage returns a sent message, with every attempt and its SMTP transcript.
func (c *Client) GetMessage(ctx context.Context, id string) (*Message, error) {
	return do[Message](ctx, c, call{method: http.MethodGet, path: "/outbound/messages/{id}", id: id})
}

// RescheduleMessage changes the time of a message for all recipients that are still scheduled, up
// to 30 days ahead. It returns ErrConflict if there are none.
func (c *Client) RescheduleMessage(ctx context.Context, id string, at time.Time) (*Message, error) {
	b, err := jsonBody(map[string]time.Time{"send_at": at})
	if err != nil {
		return nil, err
	}
	return do[Message](ctx, c, call{method: http.MethodPatch, path: "/outbound/messages/{id}", id: id, body: b, again: true})
}

// CancelMessage cancels a message for all recipients that are scheduled, queued or deferred.
// Attempts in progress finish; the response shows them. It returns ErrConflict if nothing is left
// to cancel.
func (c *Client) CancelMessage(ctx context.Context, id string) (*Message, error) {
	return do[Message](ctx, c, call{method: http.MethodPost, path: "/outbound/messages/{id}/cancel", id: id})
}

// GetMessageRaw writes the bytes of a sent message, as they were accepted. After an error they are
// incomplete.
func (c *Client) GetMessageRaw(ctx context.Context, id string, to io.Writer) error {
	return c.run(ctx, call{method: http.MethodGet, path: "/outbound/messages/{id}/raw", id: id, into: to})
}

// RetryMessage retries a message at once, for all recipients that are deferred or have failed on
// the service's side. It returns ErrConflict if there are none.
func (c *Client) RetryMessage(ctx context.Context, id string) (*Message, error) {
	return do[Message](ctx, c, call{method: http.MethodPost, path: "/outbound/messages/{id}/retry", id: id})
}
