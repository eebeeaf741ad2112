// SPDX-License-Identifier: Apache-2.0

package api

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"reflect"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/mailstead/mailstead/internal/account"
	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/outbound"
	"github.com/mailstead/mailstead/internal/queue"
)

// sendRequest is a send as the interface specification has it, section 2. What
// is required is for the outbox to say, together with all other rules.
type sendRequest struct {
	FromEmail   string              `json:"from_email,omitempty" required:"true" doc:"A bare address on a verified domain of yours." example:"you@example.com"`
	FromName    string              `json:"from_name,omitempty" doc:"The sender's display name." example:"Example Shop"`
	To          []string            `json:"to,omitempty" required:"true" nullable:"false" doc:"Recipients, each a@b.example or Name <a@b.example>. At most 50 in to, cc and bcc together, each address once." example:"Bob <bob@example.org>"`
	Cc          []string            `json:"cc,omitempty" nullable:"false" doc:"Further recipients, whom all see." example:"carol@example.org"`
	Bcc         []string            `json:"bcc,omitempty" nullable:"false" doc:"Further recipients, whom nobody sees." example:"archive@example.org"`
	ReplyTo     string              `json:"reply_to,omitempty" doc:"Where answers go." example:"support@example.com"`
	Subject     string              `json:"subject,omitempty" required:"true" doc:"The subject line." example:"Your order"`
	Text        string              `json:"text,omitempty" doc:"The plain text; text, html or both are required." example:"Thank you!"`
	HTML        string              `json:"html,omitempty" doc:"The HTML; text, html or both are required." example:"<p>Thank you!</p>"`
	Attachments []attachmentRequest `json:"attachments,omitempty" nullable:"false" maxItems:"10" doc:"At most 10, and 25 MB (26,214,400 bytes) together when decoded."`
	Headers     map[string]string   `json:"headers,omitempty" doc:"Custom header fields; every name starts with X-." example:"{\"X-Order\":\"42\"}"`
	Metadata    object              `json:"metadata,omitempty" doc:"Your own data, at most 16 KiB; it is in the answer and in every event." example:"{\"order\":42}"`
	ThreadID    string              `json:"thread_id,omitempty" doc:"Groups messages: 1 to 255 printable characters. One is made when left out." example:"order-42"`
	InReplyTo   string              `json:"in_reply_to,omitempty" doc:"The Message-ID of the message that this answers." example:"<abc@example.org>"`
}

// TransformSchema says what single fields can't: text, html or both.
func (sendRequest) TransformSchema(_ huma.Registry, s *huma.Schema) *huma.Schema {
	s.AnyOf = []*huma.Schema{{Required: []string{"text"}}, {Required: []string{"html"}}}
	return s
}

type attachmentRequest struct {
	Filename    string  `json:"filename,omitempty" required:"true" doc:"The file's name." example:"invoice.pdf"`
	Content     content `json:"content" doc:"The file, in base64."`
	ContentType string  `json:"content_type,omitempty" doc:"The media type; by the name's extension when left out." example:"application/pdf"`
	ContentID   string  `json:"content_id,omitempty" doc:"For images that the html shows as cid:…" example:"logo"`
	Disposition string  `json:"disposition,omitempty" enum:"attachment,inline" doc:"inline with a content_id, else attachment, when left out."`
}

// content is the number of a file in the spool.
type content int

// Schema is what huma asks a type for.
func (content) Schema(huma.Registry) *huma.Schema {
	return &huma.Schema{Type: "string", ContentEncoding: "base64", Examples: []any{"SGVsbG8="}}
}

// sendInput describes a send; it is never filled in.
type sendInput struct{ Body sendRequest }

type acceptedAnswer struct {
	ID         db.ID           `json:"id" doc:"The message's id."`
	Status     queue.State     `json:"status" doc:"Where the message stands."`
	MessageID  string          `json:"message_id" doc:"The Message-ID header field." example:"<0192f0c1-7a6e-7c3a-b1f2-5a0d9e6c4b21@example.com>"`
	ThreadID   string          `json:"thread_id" doc:"The thread it belongs to." example:"order-42"`
	Recipients []sendRecipient `json:"recipients" nullable:"false" doc:"Every recipient, each address once."`
	Metadata   object          `json:"metadata" doc:"As it was given."`
	CreatedAt  time.Time       `json:"created_at" doc:"When it was accepted."`
}

type sendRecipient struct {
	Email  string      `json:"email" doc:"The address." example:"bob@example.org"`
	Type   string      `json:"type" enum:"to,cc,bcc" doc:"How it was given."`
	Status queue.State `json:"status" doc:"Where the delivery stands."`
}

// maxSendBody is the bound of a send with all its attachments in base64.
const maxSendBody = 40 << 20

func (a *API) send(w http.ResponseWriter, r *http.Request, p account.Principal) (acceptedAnswer, error) {
	files := &spool{}
	defer files.remove()
	s, err := readSend(w, r, files)
	if err != nil {
		// A client that is still sending would not see the answer. What is
		// left of a body within reason is taken first.
		_, _ = io.CopyN(io.Discard, r.Body, maxSendBody)
		return acceptedAnswer{}, err
	}
	results, err := a.Outbox.Send(r.Context(), p, []outbound.Send{*s}, outbound.Options{})
	if err != nil {
		return acceptedAnswer{}, err
	}
	accepted := results[0]
	out := acceptedAnswer{
		ID: accepted.ID, Status: accepted.Status, MessageID: accepted.MessageID, ThreadID: accepted.ThreadID,
		Metadata: object(accepted.Metadata), CreatedAt: stamp(accepted.CreatedAt),
	}
	for _, to := range accepted.Recipients {
		out.Recipients = append(out.Recipients, sendRecipient(to))
	}
	return out, nil
}

// readSend decodes a body whose attachments go to the spool as they come.
func readSend(w http.ResponseWriter, r *http.Request, files *spool) (*outbound.Send, error) {
	if err := requireJSON(r); err != nil {
		return nil, err
	}
	rest, bad, err := extract(http.MaxBytesReader(w, broken{r.Body}, maxSendBody), files.sink)
	if err != nil {
		return nil, err
	}
	var in sendRequest
	if err := merge(&bad, decode(rest, reflect.ValueOf(&in).Elem())); err != nil {
		return nil, err
	}
	s := &outbound.Send{
		FromEmail: in.FromEmail, FromName: in.FromName, To: in.To, Cc: in.Cc, Bcc: in.Bcc, ReplyTo: in.ReplyTo,
		Subject: in.Subject, Text: in.Text, HTML: in.HTML, Headers: in.Headers, Metadata: json.RawMessage(in.Metadata),
		ThreadID: in.ThreadID, InReplyTo: in.InReplyTo,
	}
	for _, f := range in.Attachments {
		a := outbound.Attachment{Filename: f.Filename, ContentType: f.ContentType, ContentID: f.ContentID, Disposition: f.Disposition}
		if n := int(f.Content); n >= 0 && n < len(files.files) { // else there are too many, or bad tells why
			a.Size, a.Open = files.files[n].size, files.files[n].open
		}
		s.Attachments = append(s.Attachments, a)
	}
	s.Faults = bad
	return s, nil
}

// spool keeps the attachments of a request: small ones in memory, larger ones
// in files that have no name any more, so that nothing is left behind. It
// keeps no more of them than one message can have.
type spool struct{ files []*spooled }

const spoolInMemory = 64 << 10

type spooled struct {
	size int64
	buf  bytes.Buffer
	file *os.File
}

func (s *spool) sink() io.Writer {
	if len(s.files) == outbound.MaxAttachments {
		return io.Discard
	}
	f := &spooled{}
	s.files = append(s.files, f)
	return f
}

func (s *spool) remove() {
	for _, f := range s.files {
		if f.file != nil {
			_ = f.file.Close()
		}
	}
}

func (f *spooled) Write(p []byte) (int, error) {
	f.size += int64(len(p))
	if f.size > outbound.MaxAttachmentBytes {
		// The rest is read and dropped; its size alone is told.
		return len(p), nil
	}
	if f.file == nil && f.buf.Len()+len(p) <= spoolInMemory {
		return f.buf.Write(p)
	}
	if f.file == nil {
		file, err := os.CreateTemp("", "mailstead-attachment-")
		if err != nil {
			return 0, spoolFailed(err)
		}
		f.file = file
		if err := os.Remove(file.Name()); err != nil {
			return 0, spoolFailed(err)
		}
		if _, err := file.Write(f.buf.Bytes()); err != nil {
			return 0, spoolFailed(err)
		}
		f.buf = bytes.Buffer{}
	}
	n, err := f.file.Write(p)
	if err != nil {
		err = spoolFailed(err)
	}
	return n, err
}

func spoolFailed(err error) error {
	return fault.Wrap(err, fault.Unavailable, "storage_unavailable", "There is no room for the attachments at the moment. Please try again.")
}

func (f *spooled) open() (io.ReadCloser, error) {
	if f.file == nil {
		return io.NopCloser(bytes.NewReader(f.buf.Bytes())), nil
	}
	return io.NopCloser(io.NewSectionReader(f.file, 0, f.size)), nil
}
