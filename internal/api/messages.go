// SPDX-License-Identifier: Apache-2.0

package api

import (
	"context"
	"encoding/json"
	"time"

	"github.com/mailstead/mailstead/internal/account"
	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/outbound"
	"github.com/mailstead/mailstead/internal/queue"
)

type messageAnswer struct {
	ID         db.ID             `json:"id"`
	MailboxID  *db.ID            `json:"mailbox_id" doc:"The mailbox that submitted it; null for the API."`
	Status     queue.State       `json:"status"`
	From       string            `json:"from"`
	Subject    string            `json:"subject"`
	MessageID  string            `json:"message_id"`
	ThreadID   *string           `json:"thread_id"`
	Metadata   json.RawMessage   `json:"metadata"`
	Size       int64             `json:"size"`
	Recipients []recipientAnswer `json:"recipients" nullable:"false"`
	CreatedAt  time.Time         `json:"created_at"`
}

type recipientAnswer struct {
	Email         string          `json:"email"`
	Type          string          `json:"type" doc:"to, cc, bcc, or envelope for mail submitted over SMTP."`
	Status        queue.State     `json:"status"`
	SMTPCode      int             `json:"smtp_code,omitempty" doc:"Of the last reply."`
	EnhancedCode  string          `json:"enhanced_code,omitempty"`
	Reply         string          `json:"reply,omitempty"`
	Remote        string          `json:"remote,omitempty" doc:"Who gave the reply: a host, local, or sandbox."`
	Attempts      int             `json:"attempts"`
	NextAttemptAt *time.Time      `json:"next_attempt_at,omitempty"`
	UpdatedAt     time.Time       `json:"updated_at"`
	Timeline      []attemptAnswer `json:"timeline,omitempty" doc:"Every attempt; in the answer for a single message."`
}

type attemptAnswer struct {
	Attempt      int         `json:"attempt"`
	At           time.Time   `json:"at"`
	DurationMS   float64     `json:"duration_ms"`
	Outcome      queue.State `json:"outcome"`
	Host         string      `json:"host,omitempty"`
	IP           string      `json:"ip,omitempty"`
	TLS          string      `json:"tls,omitempty"`
	Stage        string      `json:"stage,omitempty" doc:"Where in the conversation it was decided."`
	SMTPCode     int         `json:"smtp_code,omitempty"`
	EnhancedCode string      `json:"enhanced_code,omitempty"`
	Reply        string      `json:"reply,omitempty"`
	Transcript   string      `json:"transcript,omitempty" doc:"The SMTP conversation."`
}

func showMessage(m outbound.Message) messageAnswer {
	out := messageAnswer{
		ID: m.ID, Status: m.Status, From: m.From, Subject: m.Subject, MessageID: m.MessageID, ThreadID: optional(m.ThreadID),
		Metadata: m.Metadata, Size: m.Size, Recipients: []recipientAnswer{}, CreatedAt: m.CreatedAt,
	}
	if m.Mailbox != 0 {
		out.MailboxID = &m.Mailbox
	}
	for _, d := range m.Deliveries {
		r := recipientAnswer{
			Email: d.Recipient, Type: d.Kind, Status: d.State, SMTPCode: d.Code, EnhancedCode: d.Enhanced, Reply: d.Reply,
			Remote: d.Remote, Attempts: d.Attempts, UpdatedAt: d.UpdatedAt,
		}
		if d.State == queue.Deferred || d.State == queue.Scheduled {
			r.NextAttemptAt = optionalTime(d.DueAt)
		}
		out.Recipients = append(out.Recipients, r)
	}
	return out
}

func (a *API) listMessages(ctx context.Context, p account.Principal, in *page) (*list[messageAnswer], error) {
	at, err := in.db()
	if err != nil {
		return nil, err
	}
	if p.Domain != "" {
		return nil, errOneDomain
	}
	found, more, err := a.Outbox.List(ctx, p.Account, at)
	if err != nil {
		return nil, err
	}
	return answer(found, more, showMessage, func(m outbound.Message) db.ID { return m.ID }), nil
}

func (a *API) getMessage(ctx context.Context, p account.Principal, in *one) (*body[messageAnswer], error) {
	id, err := db.ParseID(in.ID)
	if err != nil {
		return nil, err
	}
	if p.Domain != "" {
		return nil, errOneDomain
	}
	m, err := a.Outbox.Get(ctx, p.Account, id)
	if err != nil {
		return nil, err
	}
	attempts, err := a.Outbox.Attempts(ctx, p.Account, id)
	if err != nil {
		return nil, err
	}
	out := showMessage(m)
	for _, t := range attempts {
		r := &out.Recipients[t.N]
		r.Timeline = append(r.Timeline, attemptAnswer{
			Attempt: t.Attempt, At: t.StartedAt, DurationMS: float64(t.Took.Microseconds()) / 1000, Outcome: t.Outcome,
			Host: t.Host, IP: t.IP, TLS: t.TLS, Stage: t.Stage, SMTPCode: t.Code, EnhancedCode: t.Enhanced,
			Reply: t.Reply, Transcript: t.Transcript,
		})
	}
	return &body[messageAnswer]{out}, nil
}
