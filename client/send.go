// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"net/http"
	"time"
)

// State is where a delivery stands: one message on its way to one recipient.
type State string

// The states. All from Delivered on are final, but a late report may still
// turn Delivered into Bounced or Complained, and a retry Failed into Queued.
const (
	Scheduled  State = "scheduled" // waits for its time
	Queued     State = "queued"
	Sending    State = "sending"
	Deferred   State = "deferred" // is tried again later
	Delivered  State = "delivered"
	Bounced    State = "bounced"
	Complained State = "complained" // the recipient calls it spam
	Suppressed State = "suppressed" // not tried: the recipient is on your list
	Failed     State = "failed"     // our own fault, or the operator's decision
	Cancelled  State = "cancelled"
)

// Final reports whether nothing more will be tried.
func (s State) Final() bool {
	switch s {
	case Scheduled, Queued, Sending, Deferred:
		return false
	}
	return true
}

// Send is a message to be sent. Addresses are written a@b.example, or
// Name <a@b.example> where a recipient or ReplyTo has a name.
type Send struct {
	FromEmail string   `json:"from_email"` // a bare address on a verified domain of yours
	FromName  string   `json:"from_name,omitempty"`
	To        []string `json:"to"` // at most 50 in To, Cc and Bcc together
	Cc        []string `json:"cc,omitempty"`
	Bcc       []string `json:"bcc,omitempty"`
	ReplyTo   string   `json:"reply_to,omitempty"`
	Subject   string   `json:"subject"`
	Text      string   `json:"text,omitempty"` // Text, HTML or both; made of the HTML if empty
	HTML      string   `json:"html,omitempty"`

	HTMLOnly bool `json:"-"` // send no text beside the HTML

	Attachments []Attachment `json:"-"` // at most 10, and 25 MiB together

	Headers   map[string]string `json:"headers,omitempty"`     // X- fields, Auto-Submitted, Feedback-ID, In-Reply-To, List-Id, Precedence, References
	Metadata  any               `json:"metadata,omitempty"`    // what encodes to a JSON object, at most 16 KiB; comes back in answers and events
	ThreadID  string            `json:"thread_id,omitempty"`   // one is made if empty
	InReplyTo string            `json:"in_reply_to,omitempty"` // the Message-ID of the message that this answers
	SendAt    time.Time         `json:"send_at,omitzero"`      // up to 30 days ahead; zero: at once

	// Unsubscribe, if it is not nil, offers the recipient to unsubscribe
	// (RFC 8058).
	Unsubscribe *Unsubscribe `json:"unsubscribe,omitempty"`

	// IdempotencyKey makes the service accept the message once, however often
	// it is sent with this key within 24 hours. Give one that belongs to what
	// the message is about, such as "order-42-confirmed", if your own program
	// may come here twice. If it is empty a random one covers the attempts of
	// one call.
	IdempotencyKey string `json:"-"`
}

// MarshalJSON says that no text is to be made of the HTML by an empty one.
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

// Unsubscribe says how to unsubscribe. The zero value leaves it to the service,
// which hosts a link; the message then has exactly one recipient.
type Unsubscribe struct {
	URL    string `json:"url,omitempty"`    // an https URL of yours that takes the one-click POST
	Mailto string `json:"mailto,omitempty"` // an address, or a mailto URI, offered beside; by default the service's own beside a hosted link
}

// Accepted is the answer to a send: the message is stored safely.
type Accepted struct {
	ID         string              `json:"id"`
	Status     State               `json:"status"`
	MessageID  string              `json:"message_id"` // the header field, with angle brackets
	ThreadID   string              `json:"thread_id"`
	Recipients []AcceptedRecipient `json:"recipients"` // each address once
	Metadata   json.RawMessage     `json:"metadata"`
	SendAt     *time.Time          `json:"send_at"` // nil unless it is scheduled
	CreatedAt  time.Time           `json:"created_at"`

	// Replayed tells that the message had been accepted before, under the same
	// idempotency key, and that this is the answer of then.
	Replayed bool `json:"-"`
}

// AcceptedRecipient is one recipient of an accepted message.
type AcceptedRecipient struct {
	Email  string `json:"email"`
	Type   string `json:"type"` // to, cc or bcc
	Status State  `json:"status"`
	Reason string `json:"reason"` // with the status Suppressed: why the address is on your list
}

// Send sends a message. Readers of attachments are read within the call, and
// again from where they stood if it has to be repeated.
func (c *Client) Send(ctx context.Context, s *Send) (*Accepted, error) {
	var w writer
	w.message(s, s.Attachments)
	b, err := w.body()
	if err != nil {
		return nil, err
	}
	return c.accept(ctx, "/outbound/send", s.IdempotencyKey, b)
}

// accept makes a call that accepts one message.
func (c *Client) accept(ctx context.Context, path, key string, b *body) (*Accepted, error) {
	out, header, err := exchange[Accepted](ctx, c, call{method: http.MethodPost, path: path, body: b, key: keyOr(key)})
	if err != nil {
		return nil, err
	}
	out.Replayed = replayed(header)
	return out, nil
}

func replayed(h http.Header) bool { return h.Get("Idempotency-Replayed") == "true" }

// keyOr makes an idempotency key up if none is given.
func keyOr(key string) string {
	if key == "" {
		return rand.Text()
	}
	return key
}
