// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"io"
	"iter"
	"net/http"
	"time"
)

// SimulatedMessage is a simulated message from outside, for the sandbox of mailstead dev: either
// Raw, or the fields after it.
type SimulatedMessage struct {
	MailFrom *string  `json:"mail_from,omitempty"` // the author if nil; "" is the null sender
	RcptTo   []string `json:"rcpt_to,omitempty"`   // recipients of the header if empty
	Raw      []byte   `json:"raw,omitempty"`       // the whole message

	From        string            `json:"from,omitempty"` // a@b.example or Name <a@b.example>
	To          []string          `json:"to,omitempty"`
	Cc          []string          `json:"cc,omitempty"`
	ReplyTo     string            `json:"reply_to,omitempty"`
	Subject     string            `json:"subject,omitempty"`
	Text        string            `json:"text,omitempty"`
	HTML        string            `json:"html,omitempty"`
	MessageID   string            `json:"message_id,omitempty"` // generated if empty
	InReplyTo   string            `json:"in_reply_to,omitempty"`
	Headers     map[string]string `json:"headers,omitempty"`
	Attachments []Attachment      `json:"-"`

	CheckResults *CheckResults `json:"check_results,omitempty"` // simulated verification results
}

// SimulationResult is the result of the simulated SMTP transaction.
type SimulationResult struct {
	Accepted     bool                 `json:"accepted"` // for at least one recipient
	SMTPCode     int                  `json:"smtp_code"`
	EnhancedCode string               `json:"enhanced_code"`
	Diagnostic   string               `json:"diagnostic"`
	Recipients   []SimulatedRecipient `json:"recipients"`
}

// SimulatedRecipient is the reply to one recipient.
type SimulatedRecipient struct {
	Email        string `json:"email"`
	SMTPCode     int    `json:"smtp_code"`
	EnhancedCode string `json:"enhanced_code"`
	Diagnostic   string `json:"diagnostic"`
	MailboxID    string `json:"mailbox_id"` // where it was filed; "" if nowhere
	ID           string `json:"id"`         // id of the message there
}

// SimulateInbound makes the sandbox receive a message as if over SMTP. A rejection is not an error
// but in the response.
func (c *Client) SimulateInbound(ctx context.Context, s *SimulatedMessage) (*SimulationResult, error) {
	var w writer
	w.message(s, s.Attachments)
	b, err := w.body()
	if err != nil {
		return nil, err
	}
	return do[SimulationResult](ctx, c, call{method: http.MethodPost, path: "/sandbox/inbound", body: b})
}

// CapturedMessage is an outgoing message captured by the sandbox.
type CapturedMessage struct {
	ID         string    `json:"id"`
	OutboundID string    `json:"outbound_id"` // sent message
	Envelope   Envelope  `json:"envelope"`
	Size       int64     `json:"size"` // bytes of the whole message
	RawURL     string    `json:"raw_url"`
	CapturedAt time.Time `json:"captured_at"`
	MessageSummary
	MessageContent // only from GetOutbox
}

// ListOutbox returns a page of the outgoing messages captured by the sandbox, newest first, without
// content.
func (c *Client) ListOutbox(ctx context.Context, p Paging) (*Page[CapturedMessage], error) {
	return list[CapturedMessage](ctx, c, "/sandbox/outbox", nil, p)
}

// Outbox iterates over all captured messages, newest first. It stops after an error.
func (c *Client) Outbox(ctx context.Context) iter.Seq2[CapturedMessage, error] {
	return walk(func(p Paging) (*Page[CapturedMessage], error) { return c.ListOutbox(ctx, p) })
}

// GetOutbox returns a captured message.
func (c *Client) GetOutbox(ctx context.Context, id string) (*CapturedMessage, error) {
	return do[CapturedMessage](ctx, c, call{method: http.MethodGet, path: "/sandbox/outbox/{id}", id: id})
}

// GetOutboxRaw writes the bytes of a captured message. After an error they are incomplete.
func (c *Client) GetOutboxRaw(ctx context.Context, id string, to io.Writer) error {
	return c.run(ctx, call{method: http.MethodGet, path: "/sandbox/outbox/{id}/raw", id: id, into: to})
}

// ClearOutbox deletes all messages captured so far.
func (c *Client) ClearOutbox(ctx context.Context) error {
	return c.run(ctx, call{method: http.MethodDelete, path: "/sandbox/outbox"})
}
