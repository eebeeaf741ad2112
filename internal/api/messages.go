// SPDX-License-Identifier: Apache-2.0

package api

import (
	"context"
	"time"

	"github.com/mailstead/mailstead/internal/account"
	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/outbound"
	"github.com/mailstead/mailstead/internal/queue"
)

type messageAnswer struct {
	ID              db.ID             `json:"id" doc:"The message's id."`
	MailboxID       *db.ID            `json:"mailbox_id" nullable:"true" doc:"The mailbox that submitted it; null for the API."`
	Status          queue.State       `json:"status" doc:"Derived from the recipients: the first that is open, else the worst."`
	From            string            `json:"from" doc:"The sender." example:"you@example.com"`
	Subject         string            `json:"subject" doc:"The subject line." example:"Your order"`
	MessageID       string            `json:"message_id" doc:"The Message-ID header field." example:"<0192f0c1-7a6e-7c3a-b1f2-5a0d9e6c4b21@example.com>"`
	ThreadID        *string           `json:"thread_id" doc:"The thread it belongs to; null if it has none."`
	Metadata        object            `json:"metadata" doc:"As it was given with the send."`
	Size            int64             `json:"size" doc:"Of the whole message, in bytes."`
	Recipients      []recipientAnswer `json:"recipients" nullable:"false" doc:"Where it goes, blind copies included."`
	TemplateID      *db.ID            `json:"template_id,omitempty" doc:"The template that it was made of."`
	TemplateVersion int               `json:"template_version,omitempty" doc:"The version of that template." example:"3"`
	SendAt          *time.Time        `json:"send_at,omitempty" doc:"When it will be sent, while it is scheduled."`
	Omitted         bool              `json:"content_omitted,omitempty" doc:"There, and true, if the message was forwarded and the key lacks the scope mail.read: from, subject and transcripts are left out then."`
	CreatedAt       time.Time         `json:"created_at" doc:"When it was accepted."`
}

type recipientAnswer struct {
	Email         string          `json:"email" doc:"The address." example:"bob@example.org"`
	Type          string          `json:"type" enum:"to,cc,bcc,envelope" doc:"to, cc or bcc; envelope for mail submitted over SMTP."`
	Status        queue.State     `json:"status" doc:"Where the delivery stands."`
	Held          bool            `json:"held,omitempty" doc:"Whether an operator of the service holds it back; it is tried when it is released."`
	SMTPCode      int             `json:"smtp_code,omitempty" doc:"Of the last reply." example:"250"`
	EnhancedCode  string          `json:"enhanced_code,omitempty" doc:"Of the last reply (RFC 3463)." example:"2.0.0"`
	Reply         string          `json:"reply,omitempty" doc:"The last reply." example:"OK queued"`
	Remote        string          `json:"remote,omitempty" doc:"Who gave the reply: a host, local, or sandbox."`
	Attempts      int             `json:"attempts" doc:"How often delivery was tried."`
	NextAttemptAt *time.Time      `json:"next_attempt_at,omitempty" doc:"When it is tried next, if it waits."`
	UpdatedAt     time.Time       `json:"updated_at" doc:"When the status last changed."`
	Timeline      []attemptAnswer `json:"timeline,omitempty" nullable:"false" doc:"The attempts, of more than 100 the last, and what was told of the delivery later, oldest first; in the answer for a single message."`
}

type attemptAnswer struct {
	Attempt      int         `json:"attempt" doc:"1 for the first; 0 for what was told later: another host's report that it still tries (stage delay) or has failed (report), a complaint (complaint), an automatic reply (auto-reply)." example:"1"`
	At           time.Time   `json:"at" doc:"When it began."`
	DurationMS   float64     `json:"duration_ms" doc:"How long it took, in milliseconds." example:"48.2"`
	Outcome      queue.State `json:"outcome" doc:"What it came to."`
	Host         string      `json:"host,omitempty" doc:"The host that was talked to." example:"mx.example.org"`
	IP           string      `json:"ip,omitempty" doc:"Its address." example:"192.0.2.25"`
	TLS          string      `json:"tls,omitempty" doc:"The version and cipher of the encryption, if any, and how the host's certificate was verified, if it was." example:"TLS 1.3, TLS_AES_128_GCM_SHA256, verified: DANE"`
	Stage        string      `json:"stage,omitempty" doc:"Where in the conversation it was decided." example:"data"`
	SMTPCode     int         `json:"smtp_code,omitempty" doc:"Of the reply." example:"250"`
	EnhancedCode string      `json:"enhanced_code,omitempty" doc:"Of the reply (RFC 3463)." example:"2.0.0"`
	Reply        string      `json:"reply,omitempty" doc:"The reply that decided." example:"OK queued"`
	Transcript   string      `json:"transcript,omitempty" doc:"The SMTP conversation; of a message with more than 6 MB of them not those of the older attempts."`
}

func (a *API) messageRoutes(r *router) {
	handle(r, operation{method: "GET", path: "/outbound/messages", id: "listMessages", scope: "messages.read",
		summary: "List and find sent messages", description: "Those of the API and those that mailboxes submitted. All that is asked for must hold. " +
			"A page may be short, or empty, although `has_more` is true, when few of many messages are right: go on with the cursor. A message is kept for some days after its last delivery has ended: 30, unless the service says otherwise."}, a.listMessages)
	handle(r, operation{method: "GET", path: "/outbound/messages/{id}", id: "getMessage", scope: "messages.read",
		summary: "Show a sent message", description: "With each recipient's timeline: every attempt, and the SMTP conversation."}, a.getMessage)
	handleFile(r, operation{method: "GET", path: "/outbound/messages/{id}/raw", id: "getMessageRaw", scope: "mail.read", media: "message/rfc822",
		summary: "The whole text of a sent message", description: "Its bytes as they were accepted (RFC 5322), with all parts and files: subject, html and text as a template gave them, too. " +
			"Signatures are put on top when it leaves. Blind copies are not in it."}, a.messageRaw)
	handle(r, operation{method: "PATCH", path: "/outbound/messages/{id}", id: "rescheduleMessage", checksFirst: true, scope: "messages.write", conflicts: true,
		summary: "Reschedule a message", description: "Moves the recipients to whom it is still scheduled. It is a conflict when there are none."}, a.reschedule)
	handle(r, operation{method: "POST", path: "/outbound/messages/{id}/cancel", id: "cancelMessage", scope: "messages.write", conflicts: true,
		summary: "Cancel a message", description: "For the recipients to whom it is scheduled, queued or deferred. What is being sent at this moment is left to its outcome, " +
			"as `recipients` in the answer says; when nothing is left to cancel it is a conflict."}, a.cancelMessage)
	handle(r, operation{method: "POST", path: "/outbound/messages/{id}/retry", id: "retryMessage", scope: "messages.write", conflicts: true,
		summary: "Retry a message", description: "At once, for the recipients for whom it is deferred or has failed on our side. It is a conflict when there are none."}, a.retryMessage)
}

// visible is a message as a key may see it.
func visible(p account.Principal, m outbound.Message) outbound.Message {
	if !p.Can(readMail) {
		return m.WithoutContent()
	}
	return m
}

func showMessage(m outbound.Message) messageAnswer {
	out := messageAnswer{
		ID: m.ID, Omitted: m.Omitted, Status: m.Status, From: m.From, Subject: m.Subject, MessageID: m.MessageID, ThreadID: optional(m.ThreadID),
		Metadata: object(m.Metadata), Size: m.Size, SendAt: optionalTime(m.SendAt), Recipients: showRecipients(m.Deliveries), CreatedAt: stamp(m.CreatedAt),
	}
	if m.Mailbox != 0 {
		out.MailboxID = &m.Mailbox
	}
	if m.Template != 0 {
		out.TemplateID, out.TemplateVersion = &m.Template, m.TemplateVersion
	}
	return out
}

func showRecipients(deliveries []queue.Record) []recipientAnswer {
	all := []recipientAnswer{}
	for _, d := range deliveries {
		r := recipientAnswer{
			Email: d.Recipient, Type: d.Kind, Status: d.State, Held: d.Held, SMTPCode: d.Code, EnhancedCode: d.Enhanced, Reply: d.Reply,
			Remote: d.Remote, Attempts: d.Attempts, UpdatedAt: stamp(d.UpdatedAt),
		}
		if !d.Held && (d.State == queue.Deferred || d.State == queue.Scheduled) {
			r.NextAttemptAt = optionalTime(d.DueAt)
		}
		all = append(all, r)
	}
	return all
}

// addTimeline adds the attempts to their recipients.
func addTimeline(recipients []recipientAnswer, attempts []queue.Attempt) {
	for _, t := range attempts {
		if t.N >= len(recipients) {
			continue
		}
		r := &recipients[t.N]
		r.Timeline = append(r.Timeline, attemptAnswer{
			Attempt: t.Attempt, At: stamp(t.StartedAt), DurationMS: float64(t.Took.Microseconds()) / 1000, Outcome: t.Outcome,
			Host: t.Host, IP: t.IP, TLS: t.TLS, Stage: t.Stage, SMTPCode: t.Code, EnhancedCode: t.Enhanced,
			Reply: t.Reply, Transcript: t.Transcript,
		})
	}
}

func (a *API) getMessage(ctx context.Context, p account.Principal, in *one) (messageAnswer, error) {
	id, err := db.ParseID(in.ID)
	if err != nil {
		return messageAnswer{}, err
	}
	m, err := a.message(ctx, p, id)
	if err != nil {
		return messageAnswer{}, err
	}
	attempts, err := a.Outbox.Attempts(ctx, p.Account, id)
	if err != nil {
		return messageAnswer{}, err
	}
	m = visible(p, m)
	if m.Omitted {
		for i := range attempts {
			attempts[i].Transcript = "" // it names who sent it
		}
	}
	out := showMessage(m)
	addTimeline(out.Recipients, attempts)
	return out, nil
}

func (a *API) messageRaw(ctx context.Context, p account.Principal, in *one) (*file, error) {
	id, err := db.ParseID(in.ID)
	if err == nil {
		_, err = a.message(ctx, p, id)
	}
	if err != nil {
		return nil, err
	}
	r, err := a.Outbox.Open(ctx, p.Account, id)
	if err != nil {
		return nil, gone(err)
	}
	return &file{name: id.String() + ".eml", media: "message/rfc822", size: r.Size(), body: r.All(), Closer: r}, nil
}

type rescheduling struct {
	one
	Body rescheduleRequest
}

type rescheduleRequest struct {
	SendAt time.Time `json:"send_at" doc:"When to send, up to 30 days ahead; at once if it is up to five minutes past."`
}

func (a *API) reschedule(ctx context.Context, p account.Principal, in *rescheduling) (messageAnswer, error) {
	return a.changeMessage(ctx, p, in.one, func(account, id db.ID) (outbound.Message, error) {
		return a.Outbox.Reschedule(ctx, account, id, in.Body.SendAt)
	})
}

func (a *API) cancelMessage(ctx context.Context, p account.Principal, in *one) (messageAnswer, error) {
	return a.changeMessage(ctx, p, *in, func(account, id db.ID) (outbound.Message, error) {
		return a.Outbox.Cancel(ctx, account, id)
	})
}

func (a *API) retryMessage(ctx context.Context, p account.Principal, in *one) (messageAnswer, error) {
	return a.changeMessage(ctx, p, *in, func(account, id db.ID) (outbound.Message, error) {
		return a.Outbox.Retry(ctx, account, id)
	})
}

func (a *API) changeMessage(ctx context.Context, p account.Principal, in one, verb func(account, id db.ID) (outbound.Message, error)) (messageAnswer, error) {
	id, err := db.ParseID(in.ID)
	if err != nil {
		return messageAnswer{}, err
	}
	if _, err := a.message(ctx, p, id); err != nil {
		return messageAnswer{}, err
	}
	m, err := verb(p.Account, id)
	return showMessage(visible(p, m)), err
}
