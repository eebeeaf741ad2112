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

// Message is a message that was sent, or is to be, and what became of it.
type Message struct {
	ID         string          `json:"id"`
	MailboxID  string          `json:"mailbox_id"` // the mailbox that submitted it; "" for the API
	Status     State           `json:"status"`     // the first that is open, else the worst, of its recipients'
	From       string          `json:"from"`
	Subject    string          `json:"subject"`
	MessageID  string          `json:"message_id"` // the header field, with angle brackets
	ThreadID   string          `json:"thread_id"`  // "" if it has none
	Metadata   json.RawMessage `json:"metadata"`
	Size       int64           `json:"size"`       // of the whole message, in bytes
	Recipients []Recipient     `json:"recipients"` // blind copies included
	SendAt     *time.Time      `json:"send_at"`    // while it is scheduled
	// TemplateID is the template that it was made of, in its TemplateVersion;
	// "" and 0 for none.
	TemplateID      string    `json:"template_id"`
	TemplateVersion int       `json:"template_version"`
	CreatedAt       time.Time `json:"created_at"`
	Omitted         bool      `json:"content_omitted"` // it was forwarded, and the key may not read mail: From and Subject are empty
}

// Recipient is a recipient of a message, and where the delivery stands.
type Recipient struct {
	Email         string     `json:"email"`
	Type          string     `json:"type"` // to, cc or bcc; envelope for mail submitted over SMTP
	Status        State      `json:"status"`
	Held          bool       `json:"held"`          // by an operator of the service; it is tried when it is released
	SMTPCode      int        `json:"smtp_code"`     // of the last reply; 0 if there was none
	EnhancedCode  string     `json:"enhanced_code"` // such as 5.1.1 (RFC 3463)
	Reply         string     `json:"reply"`         // the last one
	Remote        string     `json:"remote"`        // who gave it: a host, local, or sandbox
	Attempts      int        `json:"attempts"`
	NextAttemptAt *time.Time `json:"next_attempt_at"` // nil unless it waits
	UpdatedAt     time.Time  `json:"updated_at"`
	Timeline      []Attempt  `json:"timeline"` // by GetMessage only
}

// Attempt is one try of a delivery.
type Attempt struct {
	Attempt      int       `json:"attempt"` // 1 for the first; 0 for what was told later: a report, a complaint, an automatic reply (Stage says which)
	At           time.Time `json:"at"`
	DurationMS   float64   `json:"duration_ms"`
	Outcome      State     `json:"outcome"`
	Host         string    `json:"host"`
	IP           string    `json:"ip"`
	TLS          string    `json:"tls"`   // version and cipher; "" for none
	Stage        string    `json:"stage"` // where in the conversation it was decided
	SMTPCode     int       `json:"smtp_code"`
	EnhancedCode string    `json:"enhanced_code"`
	Reply        string    `json:"reply"`
	Transcript   string    `json:"transcript"` // the conversation
}

// MessageFilter says which messages are wanted; the zero value is all.
type MessageFilter struct{}

// ListMessages returns a page of sent messages, newest first: those of the API
// and those that mailboxes submitted.
func (c *Client) ListMessages(ctx context.Context, _ MessageFilter, p Paging) (*Page[Message], error) {
	return list[Message](ctx, c, "/outbound/messages", nil, p)
}

// Messages walks through all sent messages that fit, newest first. After an error it
// ends.
func (c *Client) Messages(ctx context.Context, f MessageFilter) iter.Seq2[Message, error] {
	return walk(func(p Paging) (*Page[Message], error) { return c.ListMessages(ctx, f, p) })
}

// GetMessage shows a sent message, with every attempt and its SMTP
// conversation.
func (c *Client) GetMessage(ctx context.Context, id string) (*Message, error) {
	return do[Message](ctx, c, call{method: http.MethodGet, path: "/outbound/messages/{id}", id: id})
}

// RescheduleMessage moves the recipients to whom a message is still scheduled
// to another time, up to 30 days ahead. It is an ErrConflict when there are
// none.
func (c *Client) RescheduleMessage(ctx context.Context, id string, at time.Time) (*Message, error) {
	b, err := jsonBody(map[string]time.Time{"send_at": at})
	if err != nil {
		return nil, err
	}
	return do[Message](ctx, c, call{method: http.MethodPatch, path: "/outbound/messages/{id}", id: id, body: b, again: true})
}

// CancelMessage cancels a message for the recipients to whom it is scheduled,
// queued or deferred. What is being sent at this moment is left to its
// outcome, as the answer says. It is an ErrConflict when nothing is left to
// cancel.
func (c *Client) CancelMessage(ctx context.Context, id string) (*Message, error) {
	return do[Message](ctx, c, call{method: http.MethodPost, path: "/outbound/messages/{id}/cancel", id: id})
}

// GetMessageRaw writes the bytes of a sent message, as they were accepted. After
// an error they are not whole.
func (c *Client) GetMessageRaw(ctx context.Context, id string, to io.Writer) error {
	return c.run(ctx, call{method: http.MethodGet, path: "/outbound/messages/{id}/raw", id: id, into: to})
}

// RetryMessage tries a message again at once, for the recipients for whom it
// is deferred or has failed on the service's side. It is an ErrConflict when
// there are none.
func (c *Client) RetryMessage(ctx context.Context, id string) (*Message, error) {
	return do[Message](ctx, c, call{method: http.MethodPost, path: "/outbound/messages/{id}/retry", id: id})
}
