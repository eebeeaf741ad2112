// SPDX-License-Identifier: Apache-2.0

package queue

import (
	"encoding/json"
	"time"

	"github.com/mailstead/mailstead/internal/address"
	"github.com/mailstead/mailstead/internal/apijson"
	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/event"
	"github.com/mailstead/mailstead/internal/tag"
)

// StatusChange is a new state of a delivery, as events report it.
type StatusChange struct {
	MessageInfo
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

// EventFields are the fields of every event about a sent message.
type EventFields struct {
	MessageID string             `json:"message_id" doc:"The message's Message-ID, with angle brackets." example:"<0192f0c1-7a6e-7c3a-b1f2-5a0d9e6c4b21@example.com>"`
	ID        db.ID              `json:"id" doc:"The id of the message."`
	ThreadID  apijson.NullString `json:"thread_id" doc:"The thread it belongs to." example:"order-42"`
	Metadata  json.RawMessage    `json:"metadata" doc:"As it was given with the send; an empty object if none was."`
	Tags      []string           `json:"tags" doc:"As they were given with the send." example:"welcome"`
	Recipient string             `json:"recipient" doc:"The recipient that it is about." example:"bob@example.org"`
	Sequence  int                `json:"sequence" doc:"Rises by one with each event of a delivery: of two, the higher one is the later." example:"2"`
}

// StatusEvent is the data of a delivery_status event.
type StatusEvent struct {
	EventFields
	Status      State              `json:"status" doc:"The new state of the delivery."`
	Attempts    int                `json:"attempts" doc:"How often it was tried." example:"1"`
	Code        apijson.NullInt    `json:"smtp_code" doc:"The code of the last reply." example:"250"`
	Enhanced    apijson.NullString `json:"enhanced_code" doc:"The enhanced status code of the last reply (RFC 3463)." example:"2.0.0"`
	Reply       apijson.NullString `json:"diagnostic" doc:"The text of the last reply, or what went wrong." example:"Ok: queued as 4XyZ"`
	Remote      apijson.NullString `json:"remote_mta" doc:"The host that said so." example:"mx.example.org"`
	Via         apijson.NullString `json:"via" doc:"relay: a smart host took it, which tells no more." example:"relay"`
	Reason      apijson.NullString `json:"reason" doc:"Why it was not tried, such as bounce, complaint, manual or unsubscribe for a suppressed one; not_reported: nothing changed, but its sender could not be told by mail what became of it." example:"bounce"`
	NextAttempt *time.Time         `json:"next_attempt_at" doc:"When it will be tried again, while it is deferred."`
}

// BounceClassification is the classification of a bounce.
type BounceClassification struct {
	Type     string `json:"type" enum:"Permanent,Transient,Undetermined" doc:"Permanent: refused for good. Transient: tried until its time was up, or a later report of what may pass, such as a full mailbox, or of a message that was not wanted. Undetermined: a later report that does not say why."`
	Subtype  string `json:"subtype" doc:"What was wrong, in a word." example:"NoMailbox"`
	Category string `json:"category" enum:"recipient,infrastructure" doc:"Whether the recipient's address is at fault; only then it is suppressed."`
}

// BounceEvent is the data of a bounce event.
type BounceEvent struct {
	EventFields
	BounceClassification
	Code     apijson.NullInt    `json:"smtp_code" doc:"The code of the last reply." example:"550"`
	Enhanced apijson.NullString `json:"enhanced_code" doc:"The enhanced status code of the last reply (RFC 3463)." example:"5.1.1"`
	Reply    string             `json:"diagnostic" doc:"The text of the last reply, or what went wrong." example:"No such user here"`
	Remote   apijson.NullString `json:"remote_mta" doc:"The host that said so." example:"mx.example.org"`
}

// ComplaintEvent is the data of a complaint event.
type ComplaintEvent struct {
	EventFields
	Feedback apijson.NullString `json:"feedback_type" doc:"The kind of report (RFC 5965)." example:"abuse"`
	Reporter apijson.NullString `json:"reporter" doc:"Who reported it." example:"example.org"`
}

// UnsubscribeEvent is the data of an unsubscribe event.
type UnsubscribeEvent struct {
	EventFields
	Method UnsubscribeMethod `json:"method" enum:"link,email" doc:"How the recipient unsubscribed. link: by the hosted link, in a browser or by the button of a mail program. email: by a message to the address that the service offers."`
}

func (s *StatusChange) eventFields(sequence int) EventFields {
	metadata := s.Metadata
	if len(metadata) == 0 || !json.Valid(metadata) {
		metadata = json.RawMessage("{}")
	}
	return EventFields{MessageID: s.MessageID, ID: s.ID, ThreadID: apijson.NullString(s.ThreadID), Metadata: metadata, Tags: tag.Split(s.Tags),
		Recipient: s.Recipient, Sequence: sequence}
}

func (s *StatusChange) newEvent(kind string, data any) event.RecordParams {
	return event.RecordParams{
		Account: s.Account, Kind: kind, Message: s.ID, Data: data,
		Domain: s.Domain, Recipient: address.KeyOf(s.Recipient), Status: string(s.Status), Tags: s.Tags,
	}
}

// Events returns the events of a state change: delivery_status, and a bounce if b is not nil.
func (s *StatusChange) Events(b *BounceClassification) []event.RecordParams {
	var next *time.Time
	if s.NextAttempt != nil {
		utc := s.NextAttempt.UTC()
		next = &utc
	}
	all := []event.RecordParams{s.newEvent(event.DeliveryStatus, StatusEvent{
		EventFields: s.eventFields(s.Sequence + 1), Status: s.Status, Attempts: s.Attempts,
		Code: apijson.NullInt(s.Code), Enhanced: apijson.NullString(s.Enhanced), Reply: apijson.NullString(s.Reply), Remote: apijson.NullString(s.Remote), Via: apijson.NullString(s.Via), Reason: apijson.NullString(s.Reason), NextAttempt: next,
	})}
	if b != nil {
		all = append(all, s.newEvent(event.Bounce, BounceEvent{
			EventFields: s.eventFields(s.Sequence + 2), BounceClassification: *b,
			Code: apijson.NullInt(s.Code), Enhanced: apijson.NullString(s.Enhanced), Reply: s.Reply, Remote: apijson.NullString(s.Remote),
		}))
	}
	return all
}

// complaintEvents returns the events of a complaint.
func (s *StatusChange) complaintEvents(feedback, reporter string) []event.RecordParams {
	return append(s.Events(nil), s.newEvent(event.Complaint, ComplaintEvent{
		EventFields: s.eventFields(s.Sequence + 2), Feedback: apijson.NullString(feedback), Reporter: apijson.NullString(reporter),
	}))
}

// eventStatements returns the statements that record events.
func (q *Queue) eventStatements(events []event.RecordParams) ([]db.Statement, error) {
	all := make([]db.Statement, 0, len(events)+1)
	for _, e := range events {
		s, err := q.o.Events.RecordStatement(e)
		if err != nil {
			return nil, err
		}
		all = append(all, s)
	}
	return all, nil
}
