// SPDX-License-Identifier: Apache-2.0

package inbound

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"

	"github.com/mailstead/mailstead/internal/apijson"
	"github.com/mailstead/mailstead/internal/blob"
	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/event"
	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/folder"
	"github.com/mailstead/mailstead/internal/mailbox"
	"github.com/mailstead/mailstead/internal/summary"
)

// EmailEvent is the data of an inbound_email event. Its Content is read from the message when the
// event is first read (event.RecordParams.ContentMessage): few events are read, and delivery must
// not wait for it.
type EmailEvent struct {
	ID           db.ID                `json:"id" doc:"The message's id, for GET /mailboxes/{mailbox.id}/messages/{id}."`
	ThreadID     string               `json:"thread_id" doc:"The thread it belongs to." example:"order-42"`
	Metadata     EmptyMetadata        `json:"metadata" doc:"Always empty: what arrives has none."`
	Domain       db.ID                `json:"domain_id" doc:"The domain of the mailbox."`
	Mailbox      EventMailbox         `json:"mailbox" doc:"Where it arrived."`
	Envelope     Envelope             `json:"envelope" doc:"What the sending host said, whatever the header says."`
	Subaddress   apijson.NullString   `json:"subaddress" doc:"What stood after the plus in the recipient's address; null for nothing." example:"news"`
	Size         int64                `json:"size" doc:"Of the whole message, in bytes." example:"4711"`
	CheckResults summary.CheckResults `json:"check_results" doc:"How it was judged."`
	RawURL       string               `json:"raw_url" doc:"Where the whole message can be had, with your API key." example:"https://mail.example.com/api/v1/mailboxes/0192f0c1-7a6e-7c3a-b1f2-5a0d9e6c4b21/messages/0192f0c1-7a6e-7c3a-b1f2-5a0d9e6c4b22/raw"`
	summary.Summary
	*summary.Content
	Gone    bool `json:"gone" doc:"Whether the message was deleted, or lost, before the event was first read: then text, html, headers and attachments are empty." example:"false"`
	Omitted bool `json:"content_omitted" doc:"Whether the reader may not read mail: then from, to, cc, subject, date and everything from the text are empty or null." example:"false"`
	Private bool `json:"private" doc:"Whether the service itself wrote the message to the reader of this mailbox: only mail programs show it, so text, html, headers and attachments are empty." example:"false"`
}

// redactedEvent has the fields of an EmailEvent that readers see who may not read mail. They
// identify the message and its mailbox, and have nothing from the header or text but the
// Message-ID. New fields of EmailEvent are empty for them until they are added here.
type redactedEvent struct {
	ID           db.ID                `json:"id"`
	ThreadID     string               `json:"thread_id"`
	Domain       db.ID                `json:"domain_id"`
	Mailbox      EventMailbox         `json:"mailbox"`
	Envelope     Envelope             `json:"envelope"`
	Tag          apijson.NullString   `json:"tag"`
	Size         int64                `json:"size"`
	CheckResults summary.CheckResults `json:"check_results"`
	RawURL       string               `json:"raw_url"`
	MessageID    string               `json:"message_id"`
	Private      bool                 `json:"private"`
	Test         bool                 `json:"test"` // of a webhook's test event
}

// RedactEvent removes the message's content from an event's data (event.Log.RemoveContent).
func RedactEvent(kind string, data json.RawMessage) (any, error) {
	if kind != event.InboundEmail {
		return nil, nil
	}
	var n redactedEvent
	if err := json.Unmarshal(data, &n); err != nil {
		return nil, fmt.Errorf("reading the data of an %s event: %w", kind, err)
	}
	content := summary.EmptyContent()
	return struct {
		EmailEvent
		Test bool `json:"test,omitzero"`
	}{EmailEvent{
		ID: n.ID, ThreadID: n.ThreadID, Domain: n.Domain, Mailbox: n.Mailbox, Envelope: n.Envelope, Subaddress: n.Tag, Size: n.Size, CheckResults: n.CheckResults,
		RawURL: n.RawURL, Private: n.Private, Summary: summary.Summary{MessageID: n.MessageID}, Content: &content, Omitted: true,
	}, n.Test}, nil
}

// EmptyMetadata is an empty object: only sent mail has metadata, not received mail.
type EmptyMetadata struct{}

// EventMailbox identifies a mailbox.
type EventMailbox struct {
	ID      db.ID  `json:"id" doc:"The mailbox's id."`
	Address string `json:"address" doc:"Its address." example:"you@example.com"`
}

// Envelope is the SMTP envelope.
type Envelope struct {
	MailFrom string   `json:"mail_from" doc:"The sender; empty for the null sender, of reports and automatic replies." example:"bob@example.org"`
	RcptTo   []string `json:"rcpt_to" doc:"The addresses by which it came to this mailbox, plus-tags included." example:"you+news@example.com"`
}

// newEvent returns the event for a recipient's copy, without the ID and URL of the filed message.
func (s *spooledMessage) newEvent(to mailbox.Recipient, in folder.Delivery, results summary.CheckResults, from string, rcpts []string) EmailEvent {
	return EmailEvent{
		ThreadID: in.Thread.Thread, Domain: to.Domain, Mailbox: EventMailbox{to.Mailbox, to.Address}, Envelope: Envelope{from, rcpts}, Subaddress: apijson.NullString(to.Tag),
		Size: in.Blob.Size, CheckResults: results.WithDefaults(), Private: in.Private, Summary: summary.FromHeader(s.header),
	}
}

// RawURL returns the URL of the raw bytes of a message in a mailbox.
func (i *Service) RawURL(box, message db.ID) string {
	return i.BaseURL + "/api/v1/mailboxes/" + box.String() + "/messages/" + message.String() + "/raw"
}

// messageURL returns the message's URL, of which RawURL is a subresource.
func messageURL(raw string) string { return strings.TrimSuffix(raw, "/raw") }

// EventContent adds the content of messages to events.
type EventContent struct {
	Blobs *blob.Store
	Log   *slog.Logger
}

// Load adds the message's content to the data of an inbound_email event (event.Log.LoadContent). A
// deleted or damaged message sets Gone instead of failing, because later events wait for this one.
func (c *EventContent) Load(ctx context.Context, message db.ID, data json.RawMessage) (any, error) {
	var a EmailEvent
	if err := json.Unmarshal(data, &a); err != nil {
		return nil, fmt.Errorf("reading the data of an %s event: %w", event.InboundEmail, err)
	}
	content, err := c.read(ctx, message)
	switch {
	case fault.Is(err, fault.NotFound), blob.IsLost(err):
		if !fault.Is(err, fault.NotFound) {
			c.Log.Error("a message is damaged", "message", message, "error", err)
		}
		content, a.Gone = summary.EmptyContent(), true
	case fault.Is(err, fault.Denied):
		content = summary.EmptyContent()
	case err != nil:
		return nil, err
	}
	content.SetURLs(messageURL(a.RawURL))
	a.Content = &content
	return a, nil
}

func (c *EventContent) read(ctx context.Context, message db.ID) (summary.Content, error) {
	index, r, err := folder.OpenParts(ctx, c.Blobs, message)
	if err != nil {
		return summary.Content{}, err
	}
	defer r.Close() //nolint:errcheck // only read
	_, content, err := summary.Read(r, index)
	return content, err
}
