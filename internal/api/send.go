// SPDX-License-Identifier: Apache-2.0

package api

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"

	jsonv2 "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/mailstead/mailstead/internal/account"
	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/outbound"
	"github.com/mailstead/mailstead/internal/queue"
)

// sendRequest is a send as the interface specification has it.
type sendRequest struct {
	FromEmail   string              `json:"from_email" doc:"A bare address on a verified domain of yours." example:"you@example.com"`
	FromName    string              `json:"from_name,omitempty"`
	To          []string            `json:"to" nullable:"false" doc:"At most 50 recipients in to, cc and bcc together."`
	Cc          []string            `json:"cc,omitempty"`
	Bcc         []string            `json:"bcc,omitempty"`
	ReplyTo     string              `json:"reply_to,omitempty"`
	Subject     string              `json:"subject"`
	Text        string              `json:"text,omitempty" doc:"text, html or both are required."`
	HTML        string              `json:"html,omitempty"`
	Attachments []attachmentRequest `json:"attachments,omitempty" doc:"At most 10, and 25 MB together when decoded."`
	Headers     map[string]string   `json:"headers,omitempty" doc:"Custom headers; every name starts with X-."`
	Metadata    jsontext.Value      `json:"metadata,omitempty" doc:"An object of at most 16 KiB, echoed in every event."`
	ThreadID    string              `json:"thread_id,omitempty"`
	InReplyTo   string              `json:"in_reply_to,omitempty" doc:"The Message-ID that this answers."`
}

type attachmentRequest struct {
	Filename    string         `json:"filename"`
	Content     jsontext.Value `json:"content" doc:"In base64."`
	ContentType string         `json:"content_type,omitempty" doc:"By the file name's extension when left out."`
	ContentID   string         `json:"content_id,omitempty" doc:"For images that the html shows as cid:…"`
	Disposition string         `json:"disposition,omitempty" enum:"attachment,inline"`
}

type sendAnswer struct {
	ID         db.ID           `json:"id"`
	Status     queue.State     `json:"status"`
	MessageID  string          `json:"message_id"`
	ThreadID   string          `json:"thread_id"`
	Recipients []sendRecipient `json:"recipients" nullable:"false"`
	Metadata   json.RawMessage `json:"metadata"`
	CreatedAt  time.Time       `json:"created_at"`
}

type sendRecipient struct {
	Email  string      `json:"email"`
	Type   string      `json:"type" enum:"to,cc,bcc"`
	Status queue.State `json:"status"`
}

// maxSendBody is the bound of a send with all its attachments in base64.
const maxSendBody = 40 << 20

func (a *API) send(w http.ResponseWriter, r *http.Request, p account.Principal) error {
	files := &spool{}
	defer files.remove()
	s, err := a.readSend(w, r, files)
	if err != nil {
		return err
	}
	accepted, err := a.Outbox.Send(r.Context(), p, *s)
	if err != nil {
		return err
	}
	out := sendAnswer{
		ID: accepted.ID, Status: accepted.Status, MessageID: accepted.MessageID, ThreadID: accepted.ThreadID,
		Metadata: accepted.Metadata, CreatedAt: accepted.CreatedAt,
	}
	for _, to := range accepted.Recipients {
		out.Recipients = append(out.Recipients, sendRecipient(to))
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusAccepted)
	// It is accepted, whether or not the client still listens.
	_ = json.NewEncoder(w).Encode(out)
	return nil
}

// readSend decodes a body whose attachments go to the spool as they come.
func (a *API) readSend(w http.ResponseWriter, r *http.Request, files *spool) (*outbound.Send, error) {
	if kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || kind != "application/json" {
		return nil, newProblem(http.StatusUnsupportedMediaType, "unsupported_media_type", "Send the body as application/json.")
	}
	rest, err := extract(http.MaxBytesReader(w, r.Body, maxSendBody), files.sink)
	if err != nil {
		return nil, err
	}
	var in sendRequest
	if err := decode(rest, &in); err != nil {
		return nil, err
	}
	s := &outbound.Send{
		FromEmail: in.FromEmail, FromName: in.FromName, To: in.To, Cc: in.Cc, Bcc: in.Bcc, ReplyTo: in.ReplyTo,
		Subject: in.Subject, Text: in.Text, HTML: in.HTML, Headers: in.Headers, Metadata: json.RawMessage(in.Metadata),
		ThreadID: in.ThreadID, InReplyTo: in.InReplyTo,
	}
	var bad fault.Fields
	for i, f := range in.Attachments {
		n, err := strconv.Atoi(string(f.Content))
		if err != nil || n < 0 || n >= len(files.files) {
			bad.Add(fmt.Sprintf("attachments[%d].content", i), "required", "Give the content in base64.")
			continue
		}
		s.Attachments = append(s.Attachments, outbound.Attachment{
			Filename: f.Filename, ContentType: f.ContentType, ContentID: f.ContentID, Disposition: f.Disposition,
			Size: files.files[n].size, Open: files.files[n].open,
		})
	}
	return s, bad.Err()
}

// decode reads JSON strictly: no unknown or duplicate members, valid UTF-8.
func decode(text []byte, into any) error {
	err := jsonv2.Unmarshal(text, into, jsonv2.RejectUnknownMembers(true))
	if err == nil {
		return nil
	}
	var semantic *jsonv2.SemanticError
	if !errors.As(err, &semantic) {
		return badJSON("The request's body is not valid JSON, in UTF-8 and without duplicate names.")
	}
	field := strings.ReplaceAll(strings.TrimPrefix(string(semantic.JSONPointer), "/"), "/", ".")
	var bad fault.Fields
	if errors.Is(err, jsonv2.ErrUnknownName) {
		bad.Add(field, "unknown_field", "There is no such field.")
	} else {
		bad.Add(field, "wrong_type", "This field is of another type.")
	}
	return bad.Err()
}

// spool keeps the attachments of a request: small ones in memory, larger ones
// in files that have no name any more, so that nothing is left behind.
type spool struct{ files []*spooled }

const spoolInMemory = 64 << 10

type spooled struct {
	size int64
	buf  bytes.Buffer
	file *os.File
}

func (s *spool) sink() io.Writer {
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
			return 0, fmt.Errorf("spooling an attachment: %w", err)
		}
		f.file = file
		if err := os.Remove(file.Name()); err != nil {
			return 0, fmt.Errorf("spooling an attachment: %w", err)
		}
		if _, err := file.Write(f.buf.Bytes()); err != nil {
			return 0, fmt.Errorf("spooling an attachment: %w", err)
		}
		f.buf = bytes.Buffer{}
	}
	return f.file.Write(p)
}

func (f *spooled) open() (io.ReadCloser, error) {
	if f.file == nil {
		return io.NopCloser(bytes.NewReader(f.buf.Bytes())), nil
	}
	return io.NopCloser(io.NewSectionReader(f.file, 0, f.size)), nil
}
