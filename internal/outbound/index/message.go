// SPDX-License-Identifier: Apache-2.0

package index

import (
	"encoding/json"
	"time"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/queue"
)

// Message is an outbound message as its account sees it.
type Message struct {
	ID         db.ID
	Account    db.ID
	Domain     db.ID // sending or forwarding domain
	Mailbox    db.ID // mailbox that submitted it; 0 for the API
	From       string
	Subject    string
	MessageID  string
	ThreadID   string
	Metadata   json.RawMessage
	Tags       []string
	Size       int64
	Status     queue.State
	Deliveries []queue.DeliveryStatus
	Template   db.ID // template it was made from; 0 for none
	// TemplateVersion is the version of Template.
	TemplateVersion int
	SendAt          time.Time // while it is scheduled; otherwise zero
	CreatedAt       time.Time
	Forwarded       bool // received from outside and forwarded
	Redacted        bool // Redact removed fields
}

// Redact returns the message for a caller who may not read mail: a forwarded message loses its
// author and its subject.
func (m Message) Redact() Message {
	if m.Forwarded {
		m.From, m.Subject, m.Redacted = "", "", true
	}
	return m
}

// SetDeliveries sets the deliveries and what depends on them.
func (m *Message) SetDeliveries(all []queue.DeliveryStatus) {
	states := make([]queue.State, len(all))
	for i, d := range all {
		states[i] = d.State
		if d.State == queue.Scheduled {
			m.SendAt = d.DueAt
		}
	}
	m.Deliveries, m.Status = all, queue.MessageState(states)
}
