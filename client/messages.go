// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"encoding/json"
	"io"
	"iter"
	"net/http"
	"net/url"
	"strconv"
	"time"
)

// Message is a sent or scheduled message, with the state of its deliveries.
type Message struct {
	ID         string          `json:"id"`
	MailboxID  string          `json:"mailbox_id"` // mailbox that submitted it; "" for the API
	Status     State           `json:"status"`     // first recipient state that is not final, else the worst
	From       []Address       `json:"from"`       // authors, as the header names them
	Subject    string          `json:"subject"`
	MessageID  string          `json:"message_id"` // header field, with angle brackets
	ThreadID   string          `json:"thread_id"`  // "" if it has none
	Metadata   json.RawMessage `json:"metadata"`
	Tags       []string        `json:"tags"`
	Size       int64           `json:"size"`       // bytes of the whole message
	Recipients []Recipient     `json:"recipients"` // including blind copies
	SendAt     *time.Time      `json:"send_at"`    // while it is scheduled
	// TemplateID is the id of its template, and TemplateVersion the version; "" and 0 for none.
	TemplateID      string    `json:"template_id"`
	TemplateVersion int       `json:"template_version"`
	CreatedAt       time.Time `json:"created_at"`
	Omitted         bool      `json:"content_omitted"` // forwarded, and the key may not read mail: From and Subject are empty

	// Only from GetMessage:

	To []Address `json:"to"` // as the header names them, like Cc
	Cc []Address `json:"cc"`
	MessageContent
	ContentStatus string `json:"content_status"` // available, omitted (the key may not read mail) or lost
	RawURL        string `json:"raw_url"`
	EventsURL     string `json:"events_url"`
	ThreadURL     string `json:"thread_url"` // "" if it has no thread
}

// Recipient is a recipient of a message, with the state of the delivery.
type Recipient struct {
	Email         string     `json:"email"`
	Type          string     `json:"type"` // to, cc or bcc; envelope for mail submitted over SMTP
	Status        State      `json:"status"`
	Held          bool       `json:"held"`          // by an operator of the service, until released
	SMTPCode      int        `json:"smtp_code"`     // last reply's code; 0 if there was none
	EnhancedCode  string     `json:"enhanced_code"` // such as 5.1.1 (RFC 3463)
	Diagnostic    string     `json:"diagnostic"`    // last reply
	RemoteMTA     string     `json:"remote_mta"`    // source of the reply: a host, local, or sandbox
	Attempts      int        `json:"attempts"`
	NextAttemptAt *time.Time `json:"next_attempt_at"` // nil unless it waits
	UpdatedAt     time.Time  `json:"updated_at"`
	Timeline      []Attempt  `json:"timeline"` // only from GetMessage
}

// Attempt is one attempt of a delivery.
type Attempt struct {
	Number       int       `json:"number"` // from 1; 0 for later information: a report, a complaint, an automatic reply (see Stage)
	StartedAt    time.Time `json:"started_at"`
	DurationMS   float64   `json:"duration_ms"`
	Outcome      State     `json:"outcome"`
	RemoteMTA    string    `json:"remote_mta"`
	IP           string    `json:"ip"`
	TLS          string    `json:"tls"`   // version and cipher; "" for none
	Stage        string    `json:"stage"` // step of the SMTP session that decided the result
	SMTPCode     int       `json:"smtp_code"`
	EnhancedCode string    `json:"enhanced_code"`
	Diagnostic   string    `json:"diagnostic"`
	Transcript   string    `json:"transcript"` // of the SMTP session
}

// MessageFilter selects messages; the zero value selects all. A message must match all fields that
// are set.
type MessageFilter struct {
	Recipients   []string          // addresses, or domains; at most 10, as of every list here
	From         []string          // addresses, or domains
	Subject      string            // words that the subject contains, in any order
	Statuses     []State           // state of the message as a whole
	Metadata     map[string]string // members of the metadata with these values
	MetadataKeys []string          // members of the metadata with any value
	Tags         []string          // one of these tags
	ThreadID     string
	MailboxIDs   []string // mailboxes that submitted it
	DomainIDs    []string // sending domains

	// Time of acceptance.
	CreatedAfter  time.Time // inclusive
	CreatedBefore time.Time // exclusive
}

func (f MessageFilter) query() url.Values {
	q := url.Values{}
	setList(q, "recipient", f.Recipients)
	setList(q, "from", f.From)
	set(q, "subject", f.Subject)
	setList(q, "status", f.Statuses)
	for key, value := range f.Metadata {
		q.Set("metadata["+key+"]", value)
	}
	setList(q, "metadata_key", f.MetadataKeys)
	setList(q, "tag", f.Tags)
	set(q, "thread_id", f.ThreadID)
	setList(q, "mailbox_id", f.MailboxIDs)
	setList(q, "domain_id", f.DomainIDs)
	for name, t := range map[string]time.Time{"created_after": f.CreatedAfter, "created_before": f.CreatedBefore} {
		if !t.IsZero() {
			q.Set(name, t.UTC().Format(time.RFC3339Nano))
		}
	}
	return q
}

// ListMessages returns a page of sent messages, newest first: those of the API and those submitted
// by mailboxes.
func (c *Client) ListMessages(ctx context.Context, f MessageFilter, p Paging) (*Page[Message], error) {
	return list[Message](ctx, c, "/outbound/messages", f.query(), p)
}

// Messages iterates over all matching sent messages, newest first. It stops after an error.
func (c *Client) Messages(ctx context.Context, f MessageFilter) iter.Seq2[Message, error] {
	return walk(func(p Paging) (*Page[Message], error) { return c.ListMessages(ctx, f, p) })
}

// GetMessage returns a sent message, with every attempt and its SMTP transcript, and with its content
// if the key has the scope mail.read.
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
// to cancel; cancelling again succeeds.
func (c *Client) CancelMessage(ctx context.Context, id string) (*Message, error) {
	return do[Message](ctx, c, call{method: http.MethodPost, path: "/outbound/messages/{id}/cancel", id: id})
}

// GetMessageRaw writes the bytes of a sent message, as they were accepted. After an error they are
// incomplete.
func (c *Client) GetMessageRaw(ctx context.Context, id string, to io.Writer) error {
	return c.run(ctx, call{method: http.MethodGet, path: "/outbound/messages/{id}/raw", id: id, into: to})
}

// GetMessageAttachment writes the n-th file of a sent message, decoded. After an error it is
// incomplete.
func (c *Client) GetMessageAttachment(ctx context.Context, id string, n int, to io.Writer) error {
	return c.run(ctx, call{method: http.MethodGet, path: "/outbound/messages/{id}/attachments/" + strconv.Itoa(n), id: id, into: to})
}

// RetryMessage retries a message at once, for all recipients that are deferred or have failed on
// the service's side. It returns ErrConflict if there are none.
func (c *Client) RetryMessage(ctx context.Context, id string) (*Message, error) {
	return do[Message](ctx, c, call{method: http.MethodPost, path: "/outbound/messages/{id}/retry", id: id})
}
