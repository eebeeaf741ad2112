// SPDX-License-Identifier: Apache-2.0

package api

import (
	"context"
	"encoding/json"
	"net/http"
	"time"

	"github.com/mailstead/mailstead/internal/account"
	"github.com/mailstead/mailstead/internal/apijson"
	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/outbound"
	"github.com/mailstead/mailstead/internal/queue"
)

// SendFields are the fields common to all sends (interface specification, section 2). The outbox
// checks for required fields, along with all other rules. It is exported for the OpenAPI document,
// which uses exported types only.
type SendFields struct {
	FromEmail   string              `json:"from_email,omitempty" required:"true" doc:"A bare address on a verified domain of yours." example:"you@example.com"`
	FromName    string              `json:"from_name,omitempty" doc:"The sender's display name, at most 512 bytes." example:"Example Shop"`
	To          []string            `json:"to,omitempty" required:"true" doc:"Recipients, each a@b.example or Name <a@b.example>. At most 50 in to, cc and bcc together, each address once." example:"Bob <bob@example.org>"`
	Cc          []string            `json:"cc,omitempty" doc:"Further recipients, whom all see." example:"carol@example.org"`
	Bcc         []string            `json:"bcc,omitempty" doc:"Further recipients, whom nobody sees." example:"archive@example.org"`
	ReplyTo     string              `json:"reply_to,omitempty" doc:"Where answers go." example:"support@example.com"`
	Attachments []attachmentRequest `json:"attachments,omitempty" maxItems:"10" doc:"At most 10, and 25 MB (26,214,400 bytes) together when decoded."`
	Headers     map[string]string   `json:"headers,omitempty" doc:"Custom header fields: X- fields, Auto-Submitted, Feedback-ID, In-Reply-To, List-Id, Precedence and References. At most 50, of 16 KiB together; names of the service (X-Mailstead-, X-Service-) are refused." example:"{\"X-Order\":\"42\"}"`
	Metadata    jsonObject          `json:"metadata,omitempty" doc:"Your own data, at most 16 KiB; it is in the answer and in every event." example:"{\"order\":42}"`
	Tags        []string            `json:"tags,omitempty" doc:"Words by which you find and count messages, at most 10: each of 1 to 64 letters (a to z, A to Z), digits, dots, colons, hyphens and underscores. They are in responses and in every event. Case matters, repetitions don't." example:"welcome"`
	ThreadID    string              `json:"thread_id,omitempty" doc:"Groups messages: 1 to 255 printable characters. The mail is written as an answer to the newest message of the thread, unless in_reply_to says otherwise. When left out it is the thread of what is answered, or a new one." example:"order-42"`
	InReplyTo   string              `json:"in_reply_to,omitempty" doc:"The Message-ID of the message that this answers, sent or received." example:"<abc@example.org>"`
	SendAt      time.Time           `json:"send_at,omitempty" doc:"When to send, up to 30 days ahead; at once when left out, or up to five minutes past. How long delivery is tried counts from then."`
	Unsubscribe *unsubscribeRequest `json:"unsubscribe,omitempty" doc:"Offers the recipient to unsubscribe: adds List-Unsubscribe and List-Unsubscribe-Post (RFC 8058), which the signatures cover. An empty object is enough."`
}

// sendRequest is a send with its own text.
type sendRequest struct {
	SendFields
	Subject string  `json:"subject,omitempty" required:"true" doc:"The subject line, at most 2000 bytes." example:"Your order"`
	Text    *string `json:"text,omitempty" doc:"The plain text, at most 10 MB; text, html or both are required. When left out it is made of the html; an empty string sends the html alone." example:"Thank you!"`
	HTML    string  `json:"html,omitempty" doc:"The HTML, at most 10 MB; text, html or both are required." example:"<p>Thank you!</p>"`
}

// adjustSchema adds an example with a text. That text, html or both are required is in their
// descriptions: generators make nothing of an anyOf of required members.
func (sendRequest) adjustSchema(s *schema) {
	s.Examples = []any{map[string]any{"from_email": "you@example.com", "to": []string{"Bob <bob@example.org>"}, "subject": "Your order", "text": "Thank you!"}}
}

type attachmentRequest struct {
	Filename    string    `json:"filename,omitempty" required:"true" doc:"The file's name." example:"invoice.pdf"`
	Content     fileIndex `json:"content" doc:"The file, in base64."`
	ContentType string    `json:"content_type,omitempty" doc:"The media type; by the name's extension when left out." example:"application/pdf"`
	ContentID   string    `json:"content_id,omitempty" doc:"For images that the html shows as cid:…" example:"logo"`
	Disposition string    `json:"disposition,omitempty" enum:"attachment,inline" doc:"inline with a content_id, else attachment, when left out."`
}

// fileIndex is the index of a file in the spool.
type fileIndex int

func (fileIndex) schema(*schemas) *schema {
	return &schema{Type: "string", ContentEncoding: "base64", Examples: []any{"SGVsbG8="}}
}

type acceptedMessageResponse struct {
	ID         db.ID           `json:"id" doc:"The message's id."`
	Status     queue.State     `json:"status" doc:"Where the message stands."`
	MessageID  string          `json:"message_id" doc:"The Message-ID header field." example:"<0192f0c1-7a6e-7c3a-b1f2-5a0d9e6c4b21@example.com>"`
	ThreadID   string          `json:"thread_id" doc:"The thread it belongs to." example:"order-42"`
	Recipients []sendRecipient `json:"recipients" doc:"Every recipient, each address once."`
	Metadata   jsonObject      `json:"metadata" doc:"As it was given."`
	Tags       []string        `json:"tags" doc:"As they were given, each once." example:"welcome"`
	SendAt     *time.Time      `json:"send_at" doc:"When it will be sent, if it is scheduled; else null."`
	CreatedAt  time.Time       `json:"created_at" doc:"When it was accepted."`
}

type sendRecipient struct {
	Email  string             `json:"email" doc:"The address." example:"bob@example.org"`
	Type   string             `json:"type" enum:"to,cc,bcc" doc:"How it was given."`
	Status queue.State        `json:"status" doc:"Where the delivery stands."`
	Reason apijson.NullString `json:"reason" enum:"bounce,complaint,manual,unsubscribe" doc:"With the status suppressed: why the address is on the suppression list; else null."`
}

// sendBodyLimits returns the limits of a send with all its attachments in base64. The rest of
// the body may have text and html of 10 MB, plus the small fields.
func sendBodyLimits() bodyLimits {
	return bodyLimits{maxBytes: 40 << 20, maxRest: 24 << 20, maxValues: maxValues, maxFaults: maxFaults}
}

func (a *API) sendRoutes(r *router) {
	handleSend(r, operation{method: "POST", path: "/outbound/send", id: "send", scope: "outbound.send", status: http.StatusAccepted, mayConflict: true,
		summary: "Send an email", description: "The message is stored safely before the answer; it is on its way afterwards, or at `send_at`. " +
			"At most 50 recipients, 10 attachments and 25 MB of them."}, sendBodyLimits(), buildSend, newSendResponse)
	handleSend(r, operation{method: "POST", path: "/outbound/batch", id: "sendBatch", scope: "outbound.send", status: http.StatusAccepted, mayConflict: true,
		summary: "Send up to 100 emails", description: "Each with all the fields of a send, or of a send with a template; the request may have 100 MB (104,857,600 bytes), 24 MB without the attachments. " +
			"All messages are accepted together, or none: faults are told as `messages[3].to[0]`. " +
			"With `partial` each is judged by itself, and in place of a message that is refused stands its error; the status is 202 even if all are, unless it is the limits that leave none (429)."}, batchBodyLimits(), a.buildBatch, newBatchResponse)
}

func buildSend(_ context.Context, _ account.Principal, in *sendRequest, with decodedAttachments) (submission, error) {
	return submission{sends: []outbound.SendRequest{in.outboundRequest(with.spool, with.faults)}}, nil
}

// outboundRequest converts the request for the outbox.
func (in *sendRequest) outboundRequest(files *spool, bad fault.FieldErrors) outbound.SendRequest {
	s := in.SendFields.outboundRequest(files, bad)
	s.Subject, s.HTML = in.Subject, in.HTML
	if in.Text != nil {
		s.Text, s.HTMLOnly = *in.Text, *in.Text == ""
	}
	return s
}

func (in *SendFields) outboundRequest(files *spool, bad fault.FieldErrors) outbound.SendRequest {
	s := outbound.SendRequest{
		FromEmail: in.FromEmail, FromName: in.FromName, To: in.To, Cc: in.Cc, Bcc: in.Bcc, ReplyTo: in.ReplyTo,
		Headers: in.Headers, Metadata: json.RawMessage(in.Metadata), Tags: in.Tags, ThreadID: in.ThreadID, InReplyTo: in.InReplyTo,
		SendAt: in.SendAt, RequestFaults: bad,
		Unsubscribe: (*outbound.Unsubscribe)(in.Unsubscribe),
	}
	for _, f := range in.Attachments {
		a := outbound.Attachment{Filename: f.Filename, ContentType: f.ContentType, ContentID: f.ContentID, Disposition: f.Disposition}
		if n := int(f.Content); n >= 0 && n < len(files.files) { // otherwise bad has the fault
			a.Size, a.Open = files.files[n].size, files.files[n].open
		}
		s.Attachments = append(s.Attachments, a)
	}
	return s
}

func newSendResponse(results []outbound.SendResult) acceptedMessageResponse {
	return newAcceptedMessageResponse(results[0].AcceptedMessage)
}

func newAcceptedMessageResponse(a outbound.AcceptedMessage) acceptedMessageResponse {
	out := acceptedMessageResponse{
		ID: a.ID, Status: a.Status, MessageID: a.MessageID, ThreadID: a.ThreadID, SendAt: optionalTime(a.SendAt),
		Metadata: jsonObject(a.Metadata), Tags: a.Tags, CreatedAt: utcTime(a.CreatedAt),
	}
	for _, to := range a.Recipients {
		out.Recipients = append(out.Recipients, sendRecipient{Email: to.Email, Type: to.Type, Status: to.Status, Reason: apijson.NullString(to.Reason)})
	}
	return out
}
