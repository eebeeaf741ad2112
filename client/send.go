// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"encoding/json"
	"net/http"
	"time"
)

// State is the state of a delivery: one message to one recipient.
type State string

// Values of State. All from Delivered on are final, but a late report may turn Delivered into
// Bounced or Complained, and a retry Failed into Queued.
const (
	Scheduled  State = "scheduled" // waits for its scheduled time
	Queued     State = "queued"
	Sending    State = "sending"
	Deferred   State = "deferred" // will be retried
	Delivered  State = "delivered"
	Bounced    State = "bounced"
	Complained State = "complained" // the recipient marked it as spam
	Suppressed State = "suppressed" // not attempted: the recipient is on your suppression list
	Failed     State = "failed"     // an error of the service, or the operator's decision
	Cancelled  State = "cancelled"
)

// Final reports whether there are no further attempts.
func (s State) Final() bool {
	switch s {
	case Scheduled, Queued, Sending, Deferred:
		return false
	}
	return true
}

// Send is a message to send. Addresses have the form a@b.example; recipients and ReplyTo may also
// have the form Name <a@b.example>.
type Send struct {
	FromEmail string   `json:"from_email"` // bare address on a verified domain of yours
	FromName  string   `json:"from_name,omitempty"`
	To        []string `json:"to"` // at most 50 in To, Cc and Bcc together
	Cc        []string `json:"cc,omitempty"`
	Bcc       []string `json:"bcc,omitempty"`
	ReplyTo   string   `json:"reply_to,omitempty"`
	Subject   string   `json:"subject"`
	Text      string   `json:"text,omitempty"` // Text, HTML or both; generated from the HTML if empty
	HTML      string   `json:"html,omitempty"`

	HTMLOnly bool `json:"-"` // send no text alternative

	Attachments []Attachment `json:"-"` // at most 10, and 25 MiB in total

	Headers   map[string]string `json:"headers,omitempty"`     // X- fields, Auto-Submitted, Feedback-ID, In-Reply-To, List-Id, Precedence, References
	Metadata  any               `json:"metadata,omitempty"`    // encodes to a JSON object, at most 16 KiB; returned in responses and events
	Tags      []string          `json:"tags,omitempty"`        // at most 10, to find and count messages by: letters, digits, dots, colons, hyphens and underscores
	ThreadID  string            `json:"thread_id,omitempty"`   // generated if empty
	InReplyTo string            `json:"in_reply_to,omitempty"` // Message-ID of the message that it replies to
	SendAt    time.Time         `json:"send_at,omitzero"`      // up to 30 days ahead; zero: now

	// Unsubscribe, if not nil, lets the recipient unsubscribe (RFC 8058).
	Unsubscribe *Unsubscribe `json:"unsubscribe,omitempty"`

	// IdempotencyKey makes the service accept the message once, however often it is sent with this
	// key within 24 hours. Derive it from the message's purpose, such as "order-42-confirmed", if
	// your program may send the same message twice. If it is empty, a random key covers the
	// attempts of one call.
	IdempotencyKey string `json:"-"`
}

// MarshalJSON encodes HTMLOnly as an empty text.
func (s Send) MarshalJSON() ([]byte, error) {
	type fields Send
	if !s.HTMLOnly || s.Text != "" {
		return encode(fields(s))
	}
	return encode(struct {
		fields
		Text string `json:"text"`
	}{fields: fields(s)})
}

// Unsubscribe says how to unsubscribe. With the zero value, the service hosts a link; the message
// must then have exactly one recipient.
type Unsubscribe struct {
	URL    string `json:"url,omitempty"`    // https URL of yours that accepts the one-click POST
	Mailto string `json:"mailto,omitempty"` // additional address or mailto URI; by default the service's own with a hosted link
}

// AcceptedMessage is the response to a send: the message is stored safely.
type AcceptedMessage struct {
	ID         string              `json:"id"`
	Status     State               `json:"status"`
	MessageID  string              `json:"message_id"` // header field, with angle brackets
	ThreadID   string              `json:"thread_id"`
	Recipients []AcceptedRecipient `json:"recipients"` // each address once
	Metadata   json.RawMessage     `json:"metadata"`
	Tags       []string            `json:"tags"`
	SendAt     *time.Time          `json:"send_at"` // nil unless it is scheduled
	CreatedAt  time.Time           `json:"created_at"`

	// Replayed reports whether the message had been accepted before, with the same idempotency key.
	// This is the response of that time.
	Replayed bool `json:"-"`
}

// AcceptedRecipient is a recipient of an accepted message.
type AcceptedRecipient struct {
	Email  string `json:"email"`
	Type   string `json:"type"` // to, cc or bcc
	Status State  `json:"status"`
	Reason string `json:"reason"` // with status Suppressed: why the address is on your suppression list
}

// Send sends a message. It reads attachments during the call. A repeated request reads them again
// from their initial position.
func (c *Client) Send(ctx context.Context, s *Send) (*AcceptedMessage, error) {
	var w writer
	w.message(s, s.Attachments)
	b, err := w.body()
	if err != nil {
		return nil, err
	}
	return c.submit(ctx, "/outbound/send", s.IdempotencyKey, b)
}

// submit makes a call that accepts one message.
func (c *Client) submit(ctx context.Context, path, key string, b *body) (*AcceptedMessage, error) {
	out, header, err := exchange[AcceptedMessage](ctx, c, call{method: http.MethodPost, path: path, body: b, key: key})
	if err != nil {
		return nil, err
	}
	out.Replayed = replayed(header)
	return out, nil
}

func replayed(h http.Header) bool { return h.Get("Idempotency-Replayed") == "true" }
