// SPDX-License-Identifier: Apache-2.0

package api

import (
	"context"
	"net/url"
	"time"

	"github.com/mailstead/mailstead/internal/account"
	"github.com/mailstead/mailstead/internal/apijson"
	"github.com/mailstead/mailstead/internal/blob"
	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/outbound"
	"github.com/mailstead/mailstead/internal/queue"
	"github.com/mailstead/mailstead/internal/summary"
	"github.com/mailstead/mailstead/internal/web"
)

// MessageFields are the fields common to all responses about a sent message.
type MessageFields struct {
	ID              db.ID             `json:"id" doc:"The message's id."`
	MailboxID       *db.ID            `json:"mailbox_id" doc:"The mailbox that submitted it; null for the API."`
	Status          queue.State       `json:"status" doc:"Derived from the recipients: the first that is open, else the worst."`
	From            []summary.Address `json:"from" doc:"The author, as the header names it; empty if that can't be read."`
	Subject         string            `json:"subject" doc:"The subject line." example:"Your order"`
	MessageID       string            `json:"message_id" doc:"The Message-ID header field." example:"<0192f0c1-7a6e-7c3a-b1f2-5a0d9e6c4b21@example.com>"`
	ThreadID        *string           `json:"thread_id" doc:"The thread it belongs to; null if it has none."`
	Metadata        jsonObject        `json:"metadata" doc:"As it was given with the send."`
	Tags            []string          `json:"tags" doc:"As they were given with the send, each once." example:"welcome"`
	Size            int64             `json:"size" doc:"Of the whole message, in bytes."`
	TemplateID      *db.ID            `json:"template_id" doc:"The template that it was made of; null for none."`
	TemplateVersion apijson.NullInt   `json:"template_version" doc:"The version of that template; null for none." example:"3"`
	SendAt          *time.Time        `json:"send_at" doc:"When it will be sent, while it is scheduled; else null."`
	ContentOmitted  bool              `json:"content_omitted" doc:"Whether the message was forwarded and the key lacks the scope mail.read: from and subject are empty and transcripts null then."`
	CreatedAt       time.Time         `json:"created_at" doc:"When it was accepted."`
}

type messageResponse struct {
	MessageFields
	Recipients []RecipientResponse `json:"recipients" doc:"Where it goes, blind copies included."`
}

type messageDetailResponse struct {
	MessageFields
	Recipients []recipientDetailResponse `json:"recipients" doc:"Where it goes, blind copies included."`
	To         []summary.Address         `json:"to" doc:"The recipients that the header names, at most 50."`
	Cc         []summary.Address         `json:"cc" doc:"Further recipients that the header names, at most 50."`
	summary.Content
	ContentStatus string  `json:"content_status" enum:"available,omitted,lost" doc:"available: the content is here; omitted: the key lacks the scope mail.read, or the service wrote the message to its recipient alone; lost: the service has lost it. Lists of the content are empty then, and texts null."`
	RawURL        string  `json:"raw_url" doc:"Where the whole message can be had, with your API key."`
	EventsURL     string  `json:"events_url" doc:"Where its events can be had."`
	ThreadURL     *string `json:"thread_url" doc:"Where its thread can be had; null if it has none."`
}

// RecipientResponse is a recipient of a sent message.
type RecipientResponse struct {
	Email         string             `json:"email" doc:"The address." example:"bob@example.org"`
	Type          string             `json:"type" enum:"to,cc,bcc,envelope" doc:"to, cc or bcc; envelope for mail submitted over SMTP."`
	Status        queue.State        `json:"status" doc:"Where the delivery stands."`
	Held          bool               `json:"held" doc:"Whether an operator of the service holds it back; it is tried when it is released."`
	SMTPCode      apijson.NullInt    `json:"smtp_code" doc:"Of the last reply." example:"250"`
	EnhancedCode  apijson.NullString `json:"enhanced_code" doc:"Of the last reply (RFC 3463)." example:"2.0.0"`
	Diagnostic    apijson.NullString `json:"diagnostic" doc:"The last reply." example:"OK queued"`
	RemoteMTA     apijson.NullString `json:"remote_mta" doc:"Who gave the reply: a host, local, or sandbox."`
	Attempts      int                `json:"attempts" doc:"How often delivery was tried."`
	NextAttemptAt *time.Time         `json:"next_attempt_at" doc:"When it is tried next, if it waits."`
	UpdatedAt     time.Time          `json:"updated_at" doc:"When the status last changed."`
}

type recipientDetailResponse struct {
	RecipientResponse
	Timeline []attemptResponse `json:"timeline" doc:"The attempts, of more than 100 the last, and what was told of the delivery later, oldest first."`
}

type attemptResponse struct {
	Number       int                `json:"number" doc:"1 for the first; 0 for what was told later: another host's report that it still tries (stage delay) or has failed (report), a complaint (complaint), an automatic reply (auto-reply)." example:"1"`
	StartedAt    time.Time          `json:"started_at" doc:"When it began."`
	DurationMS   float64            `json:"duration_ms" doc:"How long it took, in milliseconds." example:"48.2"`
	Outcome      queue.State        `json:"outcome" doc:"What it came to."`
	RemoteMTA    apijson.NullString `json:"remote_mta" doc:"The host that was talked to." example:"mx.example.org"`
	IP           apijson.NullString `json:"ip" doc:"Its address." example:"192.0.2.25"`
	TLS          apijson.NullString `json:"tls" doc:"The version and cipher of the encryption, if any, and how the host's certificate was verified, if it was." example:"TLS 1.3, TLS_AES_128_GCM_SHA256, verified: DANE"`
	Stage        apijson.NullString `json:"stage" doc:"Where in the conversation it was decided." example:"data"`
	SMTPCode     apijson.NullInt    `json:"smtp_code" doc:"Of the reply." example:"250"`
	EnhancedCode apijson.NullString `json:"enhanced_code" doc:"Of the reply (RFC 3463)." example:"2.0.0"`
	Diagnostic   apijson.NullString `json:"diagnostic" doc:"The reply that decided." example:"OK queued"`
	Transcript   apijson.NullString `json:"transcript" doc:"The SMTP conversation; of a message with more than 6 MB of them not those of the older attempts."`
}

func (a *API) messageRoutes(r *router) {
	handle(r, operation{method: "GET", path: "/outbound/messages", id: "listMessages", scope: "messages.read",
		summary: "List and find sent messages", description: "Those of the API and those that mailboxes submitted. All that is asked for must hold. " +
			"A page may be short, or empty, although `has_more` is true, when few of many messages are right: go on with the cursor. A message is kept for some days after its last delivery has ended: 30, unless the service says otherwise."}, a.listMessages)
	handleExport(r, operation{path: "/outbound/messages/export", id: "exportMessages", scope: "messages.read",
		summary: "Export sent messages", description: "All that the list has, by the same filters."}, a.exportMessages)
	handle(r, operation{method: "GET", path: "/outbound/messages/{id}", id: "getMessage", scope: "messages.read",
		summary: "Show a sent message", description: "With each recipient's timeline: every attempt, and the SMTP conversation. To keys that may read mail (`mail.read`) also its content: header, texts and a list of its files."}, a.getMessage)
	handleFile(r, operation{method: "GET", path: "/outbound/messages/{id}/attachments/{n}", id: "getMessageAttachment", scope: mailReadScope, responseMedia: "*/*",
		summary: "A file of a sent message", description: "Decoded. It is always offered for download, and where a browser could run what is in it the type is " +
			"application/octet-stream; `content_type` tells what the sender claims."}, a.getMessageAttachment)
	handleFile(r, operation{method: "GET", path: "/outbound/messages/{id}/raw", id: "getMessageRaw", scope: "mail.read", responseMedia: "message/rfc822",
		summary: "The whole text of a sent message", description: "Its bytes as they were accepted (RFC 5322), with all parts and files: subject, html and text as a template gave them, too. " +
			"Signatures are put on top when it leaves. Blind copies are not in it."}, a.getMessageRaw)
	handle(r, operation{method: "PATCH", path: "/outbound/messages/{id}", id: "rescheduleMessage", validatesFirst: true, scope: "messages.write", mayConflict: true,
		summary: "Reschedule a message", description: "Moves the recipients to whom it is still scheduled. It is a conflict when there are none."}, a.rescheduleMessage)
	handle(r, operation{method: "POST", path: "/outbound/messages/{id}/cancel", id: "cancelMessage", scope: "messages.write", mayConflict: true,
		summary: "Cancel a message", description: "For the recipients to whom it is scheduled, queued or deferred. What is being sent at this moment is left to its outcome, " +
			"as `recipients` in the answer says; when nothing is left to cancel it is a conflict, unless it was cancelled before: cancelling again changes nothing."}, a.cancelMessage)
	handle(r, operation{method: "POST", path: "/outbound/messages/{id}/retry", id: "retryMessage", scope: "messages.write", mayConflict: true,
		summary: "Retry a message", description: "At once, for the recipients for whom it is deferred or has failed on our side. It is a conflict when there are none."}, a.retryMessage)
}

// redactMessage removes the content that the principal's key may not see.
func redactMessage(p account.Principal, m outbound.Message) outbound.Message {
	if !p.HasScope(mailReadScope) {
		return m.Redact()
	}
	return m
}

func newMessageResponse(m outbound.Message) messageResponse {
	return messageResponse{newMessageFields(m), newRecipientResponses(m.Deliveries)}
}

func newMessageFields(m outbound.Message) MessageFields {
	out := MessageFields{
		ID: m.ID, ContentOmitted: m.Redacted, Status: m.Status, From: summary.ParseAddresses(m.From), Subject: m.Subject, MessageID: m.MessageID, ThreadID: optionalString(m.ThreadID),
		Metadata: jsonObject(m.Metadata), Tags: m.Tags, Size: m.Size, SendAt: optionalTime(m.SendAt), CreatedAt: utcTime(m.CreatedAt),
	}
	if m.Mailbox != 0 {
		out.MailboxID = &m.Mailbox
	}
	if m.Template != 0 {
		out.TemplateID, out.TemplateVersion = &m.Template, apijson.NullInt(m.TemplateVersion)
	}
	return out
}

func newRecipientResponses(deliveries []queue.DeliveryStatus) []RecipientResponse {
	all := []RecipientResponse{}
	for _, d := range deliveries {
		r := RecipientResponse{
			Email: d.Recipient, Type: d.Kind, Status: d.State, Held: d.Held, SMTPCode: apijson.NullInt(d.Code), EnhancedCode: apijson.NullString(d.Enhanced), Diagnostic: apijson.NullString(d.Reply),
			RemoteMTA: apijson.NullString(d.Remote), Attempts: d.Attempts, UpdatedAt: utcTime(d.UpdatedAt),
		}
		if !d.Held && (d.State == queue.Deferred || d.State == queue.Scheduled) {
			r.NextAttemptAt = optionalTime(d.DueAt)
		}
		all = append(all, r)
	}
	return all
}

// newRecipientDetailResponses converts deliveries with their attempts.
func newRecipientDetailResponses(deliveries []queue.DeliveryStatus, attempts []queue.Attempt) []recipientDetailResponse {
	all := []recipientDetailResponse{}
	for _, r := range newRecipientResponses(deliveries) {
		all = append(all, recipientDetailResponse{r, []attemptResponse{}})
	}
	for _, t := range attempts {
		if t.N >= len(all) {
			continue
		}
		r := &all[t.N]
		r.Timeline = append(r.Timeline, attemptResponse{
			Number: t.Number, StartedAt: utcTime(t.StartedAt), DurationMS: float64(t.Duration.Microseconds()) / 1000, Outcome: t.Outcome,
			RemoteMTA: apijson.NullString(t.Host), IP: apijson.NullString(t.IP), TLS: apijson.NullString(t.TLS), Stage: apijson.NullString(t.Stage),
			SMTPCode: apijson.NullInt(t.Code), EnhancedCode: apijson.NullString(t.Enhanced),
			Diagnostic: apijson.NullString(t.Reply), Transcript: apijson.NullString(t.Transcript),
		})
	}
	return all
}

func (a *API) getMessage(ctx context.Context, p account.Principal, in *idParams) (messageDetailResponse, error) {
	id, err := db.ParseID(in.ID)
	if err != nil {
		return messageDetailResponse{}, err
	}
	m, err := a.sentMessage(ctx, p, id)
	if err != nil {
		return messageDetailResponse{}, err
	}
	attempts, err := a.Outbox.Attempts(ctx, p.Account, id)
	if err != nil {
		return messageDetailResponse{}, err
	}
	m = redactMessage(p, m)
	if m.Redacted {
		for i := range attempts {
			attempts[i].Transcript = "" // the transcript names the sender
		}
	}
	out := messageDetailResponse{
		MessageFields: newMessageFields(m), Recipients: newRecipientDetailResponses(m.Deliveries, attempts), To: []summary.Address{}, Cc: []summary.Address{},
		Content: summary.EmptyContent(), RawURL: a.sentMessageURL(id) + "/raw", EventsURL: a.BaseURL + "/api/v1/events?message=" + id.String(),
	}
	if m.ThreadID != "" {
		out.ThreadURL = new(a.BaseURL + "/api/v1/threads/" + url.PathEscape(m.ThreadID))
	}
	return out, a.addSentContent(ctx, p, id, &out)
}

func (a *API) sentMessageURL(id db.ID) string {
	return a.BaseURL + "/api/v1/outbound/messages/" + id.String()
}

// addSentContent adds the content of a sent message, if the principal may see it and it is there.
func (a *API) addSentContent(ctx context.Context, p account.Principal, id db.ID, out *messageDetailResponse) error {
	if out.ContentStatus = "omitted"; !p.HasScope(mailReadScope) {
		return nil
	}
	index, r, err := a.Outbox.OpenParts(ctx, p.Account, id)
	switch {
	case fault.Is(err, fault.Denied):
		return nil
	case blob.IsLost(err):
		out.ContentStatus = "lost"
		return nil
	case err != nil:
		return expungedAsNotFound(err)
	}
	defer r.Close() //nolint:errcheck // only read
	header, content, err := summary.Read(r, index)
	switch {
	case blob.IsLost(err):
		out.ContentStatus = "lost"
		return nil
	case err != nil:
		return err
	}
	out.ContentStatus, out.To, out.Cc, out.Content = "available", header.To, header.Cc, content
	out.SetURLs(a.sentMessageURL(id))
	return nil
}

type messageAttachmentInput struct {
	idParams
	N string `path:"n" doc:"The file's number in the message's attachments."`
}

func (a *API) getMessageAttachment(ctx context.Context, p account.Principal, in *messageAttachmentInput) (*web.FileResponse, error) {
	id, err := db.ParseID(in.ID)
	if err == nil {
		_, err = a.sentMessage(ctx, p, id)
	}
	if err != nil {
		return nil, err
	}
	index, r, err := a.Outbox.OpenParts(ctx, p.Account, id)
	if err != nil {
		return nil, expungedAsNotFound(err)
	}
	f, err := web.AttachmentFile(index, r, in.N)
	if err == nil && f == nil {
		err = errNotFound
	}
	return f, err
}

func (a *API) getMessageRaw(ctx context.Context, p account.Principal, in *idParams) (*web.FileResponse, error) {
	id, err := db.ParseID(in.ID)
	if err == nil {
		_, err = a.sentMessage(ctx, p, id)
	}
	if err != nil {
		return nil, err
	}
	r, err := a.Outbox.Open(ctx, p.Account, id)
	if err != nil {
		return nil, expungedAsNotFound(err)
	}
	return web.RawFile(id.String(), r), nil
}

type rescheduleInput struct {
	idParams
	Body rescheduleRequest
}

type rescheduleRequest struct {
	SendAt time.Time `json:"send_at" doc:"When to send, up to 30 days ahead; at once if it is up to five minutes past."`
}

func (a *API) rescheduleMessage(ctx context.Context, p account.Principal, in *rescheduleInput) (messageResponse, error) {
	return a.changeMessage(ctx, p, in.idParams, func(account, id db.ID) (outbound.Message, error) {
		return a.Outbox.Reschedule(ctx, account, id, in.Body.SendAt)
	})
}

func (a *API) cancelMessage(ctx context.Context, p account.Principal, in *idParams) (messageResponse, error) {
	return a.changeMessage(ctx, p, *in, func(account, id db.ID) (outbound.Message, error) {
		return a.Outbox.Cancel(ctx, account, id)
	})
}

func (a *API) retryMessage(ctx context.Context, p account.Principal, in *idParams) (messageResponse, error) {
	return a.changeMessage(ctx, p, *in, func(account, id db.ID) (outbound.Message, error) {
		return a.Outbox.Retry(ctx, account, id)
	})
}

func (a *API) changeMessage(ctx context.Context, p account.Principal, in idParams, verb func(account, id db.ID) (outbound.Message, error)) (messageResponse, error) {
	id, err := db.ParseID(in.ID)
	if err != nil {
		return messageResponse{}, err
	}
	if _, err := a.sentMessage(ctx, p, id); err != nil {
		return messageResponse{}, err
	}
	m, err := verb(p.Account, id)
	return newMessageResponse(redactMessage(p, m)), err
}
