// SPDX-License-Identifier: Apache-2.0

package queue

import (
	"encoding/json"
	"time"

	"github.com/mailstead/mailstead/internal/address"
	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/event"
)

// statusData is the state of a delivery as events tell it.
type statusData struct {
	About
	ID          db.ID
	Recipient   string
	Status      State
	Sequence    int // before these events
	Attempts    int
	Code        int
	Enhanced    string
	Reply       string
	Remote, Via string
	Reason      string
	NextAttempt *time.Time
}

// aboutMessage is what every event about a message carries.
type aboutMessage struct {
	MessageID string          `json:"message_id"`
	ID        db.ID           `json:"id"`
	ThreadID  string          `json:"thread_id,omitempty"`
	Metadata  json.RawMessage `json:"metadata"`
	Recipient string          `json:"recipient"`
	Sequence  int             `json:"sequence"`
}

type deliveryStatus struct {
	aboutMessage
	Status      State      `json:"status"`
	Attempts    int        `json:"attempts"`
	Code        int        `json:"smtp_code,omitempty"`
	Enhanced    string     `json:"enhanced_code,omitempty"`
	Reply       string     `json:"diagnostic,omitempty"`
	Remote      string     `json:"remote_mta,omitempty"`
	Via         string     `json:"via,omitempty"`
	Reason      string     `json:"reason,omitempty"`
	NextAttempt *time.Time `json:"next_attempt_at,omitempty"`
}

// bounce says what kind of bounce one is.
type bounce struct {
	Type     string `json:"type"` // Permanent, Transient
	Subtype  string `json:"subtype"`
	Category string `json:"category"` // recipient, infrastructure
}

type bounceData struct {
	aboutMessage
	bounce
	Code     int    `json:"smtp_code,omitempty"`
	Enhanced string `json:"enhanced_code,omitempty"`
	Reply    string `json:"diagnostic"`
	Remote   string `json:"remote_mta,omitempty"`
}

type complaintData struct {
	aboutMessage
	Feedback string `json:"feedback_type,omitempty"`
	Reporter string `json:"reporter,omitempty"`
}

func (s *statusData) about(sequence int) aboutMessage {
	metadata := s.Metadata
	if len(metadata) == 0 || !json.Valid(metadata) {
		metadata = json.RawMessage("{}")
	}
	return aboutMessage{MessageID: s.MessageID, ID: s.ID, ThreadID: s.ThreadID, Metadata: metadata,
		Recipient: s.Recipient, Sequence: sequence}
}

func (s *statusData) new(kind string, data any) event.New {
	return event.New{
		Account: s.Account, Kind: kind, Message: s.ID, Data: data,
		Domain: s.Domain, Recipient: address.KeyOf(s.Recipient), Status: string(s.Status),
	}
}

// events returns what a transition fires: delivery_status, and a bounce.
func (s *statusData) events(b *bounce) []event.New {
	var next *time.Time
	if s.NextAttempt != nil {
		utc := s.NextAttempt.UTC()
		next = &utc
	}
	all := []event.New{s.new(event.DeliveryStatus, deliveryStatus{
		aboutMessage: s.about(s.Sequence + 1), Status: s.Status, Attempts: s.Attempts,
		Code: s.Code, Enhanced: s.Enhanced, Reply: s.Reply, Remote: s.Remote, Via: s.Via, Reason: s.Reason, NextAttempt: next,
	})}
	if b != nil {
		all = append(all, s.new(event.Bounce, bounceData{
			aboutMessage: s.about(s.Sequence + 2), bounce: *b,
			Code: s.Code, Enhanced: s.Enhanced, Reply: s.Reply, Remote: s.Remote,
		}))
	}
	return all
}

// complaint returns what a complaint fires.
func (s *statusData) complaint(feedback, reporter string) []event.New {
	return append(s.events(nil), s.new(event.Complaint, complaintData{
		aboutMessage: s.about(s.Sequence + 2), Feedback: feedback, Reporter: reporter,
	}))
}

// prepare makes the statements that record events.
func (q *Queue) prepare(events []event.New) ([]db.Statement, error) {
	all := make([]db.Statement, 0, len(events)+1)
	for _, e := range events {
		s, err := q.o.Events.Prepare(e)
		if err != nil {
			return nil, err
		}
		all = append(all, s)
	}
	return all, nil
}
