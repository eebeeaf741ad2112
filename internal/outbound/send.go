// SPDX-License-Identifier: Apache-2.0

package outbound

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/mailstead/mailstead/internal/address"
	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/message"
	"github.com/mailstead/mailstead/internal/smtpclient"
	"github.com/mailstead/mailstead/internal/tag"
	"github.com/mailstead/mailstead/internal/thread"
)

// Limits of a send (interface specification, sections 4 and 8).
const (
	MaxRecipients      = 50 // in to, cc and bcc together, each address once
	MaxAttachments     = 10
	MaxAttachmentBytes = 25 << 20 // decoded, all attachments together

	maxHeaders      = 50
	maxHeaderBytes  = 16 << 10 // names and values together
	maxMetadata     = 16 << 10
	maxSubject      = 2000
	maxText         = 10 << 20         // text and html each
	maxRepeatedTags = 10 * tag.MaxTags // with repetitions
	maxSendAtPast   = 5 * time.Minute
	maxSendAtAhead  = 30 * 24 * time.Hour
)

// SendRequest is a request to send mail, with the names and rules of the interface
// specification, section 2.
type SendRequest struct {
	FromEmail   string
	FromName    string
	To, Cc, Bcc []string
	ReplyTo     string
	Subject     string
	Text, HTML  string
	HTMLOnly    bool // send only HTML; otherwise a missing Text is generated from it
	Attachments []Attachment
	Headers     map[string]string
	Metadata    json.RawMessage // a JSON object, or nil
	Tags        []string        // repeated ones count once
	ThreadID    string
	InReplyTo   string       // a Message-ID, with or without angle brackets
	SendAt      time.Time    // time of sending; zero: immediately
	Class       string       // class of the mail for Feedback-ID; "" for an ordinary send
	Unsubscribe *Unsubscribe // nil for no unsubscribe offer
	// Template is the template that the message was made from, and TemplateVersion its version; 0
	// for none.
	Template        db.ID
	TemplateVersion int

	// RequestFaults are the errors that the caller found in the request. They are reported together
	// with the broken rules. The field "" is the whole request.
	RequestFaults fault.FieldErrors
}

// Attachment is a file in a send, with decoded content.
type Attachment struct {
	Filename    string
	ContentType string
	ContentID   string
	Disposition string // attachment, inline, or empty
	Size        int64
	Open        func() (io.ReadCloser, error)
}

// recipient is one recipient address.
type recipient struct {
	address.Address
	kind string // to, cc, bcc; envelope
	// Options of a submission (RFC 3461).
	notify            smtpclient.Notify
	originalRecipient string
}

// validSend is a send that passed all checks that don't need the database.
type validSend struct {
	from              address.Address
	draft             message.Draft
	recipients        []recipient
	metadata          string
	tags              string // as tag.Join returns them
	threadID          string
	sendAt            time.Time // zero: immediately
	class             string
	template          db.ID
	templateVersion   int
	offersUnsubscribe bool     // the message offers to unsubscribe
	hostsUnsubscribe  bool     // by a link that the service hosts
	references        []string // as given in the request
	hasFeedbackID     bool     // the request contains a Feedback-ID
}

// validate checks every rule of a send and returns all faults at once.
func (s *SendRequest) validate(now time.Time) (*validSend, fault.FieldErrors) {
	var bad fault.FieldErrors
	l := &validSend{metadata: "{}", threadID: s.ThreadID, class: s.Class, template: s.Template, templateVersion: s.TemplateVersion}
	l.readFrom(s, &bad)
	l.readRecipients(s, &bad)
	l.readBody(s, &bad)
	l.readAttachments(s, &bad)
	if s.InReplyTo != "" {
		l.draft.InReplyTo = "<" + strings.Trim(s.InReplyTo, "<>") + ">"
	}
	l.readHeaders(s, &bad)
	l.readMetadata(s, &bad)
	l.readTags(s.Tags, &bad)
	l.readSendAt(s, now, &bad)
	l.readUnsubscribe(s, &bad)
	if s.ThreadID != "" && !thread.ValidID(s.ThreadID) {
		bad.Add("thread_id", "invalid_thread_id", "A thread id is 1 to %d printable characters.", thread.MaxIDLength)
	}
	if l.from.Domain == "" {
		l.draft.From.Local, l.draft.From.Domain = "x", "x.invalid" // already reported
	}
	l.draft.MessageID = "<x@x.invalid>" // placeholder; initRow sets the real one
	_ = bad.Merge(l.draft.Check())      // faults with a field, or none at all
	l.setReferences(l.draft.InReplyTo)
	return l, mergeFaults(s.RequestFaults, bad)
}

// mergeFaults adds the rules that a request breaks to the faults that the caller found. It drops
// rule faults for fields that the caller could not read.
func mergeFaults(listener, rules fault.FieldErrors) fault.FieldErrors {
	if len(listener) == 0 {
		return rules
	}
	all := slices.Clone(listener)
	for _, r := range rules {
		unread := func(d fault.FieldError) bool {
			rest, inside := strings.CutPrefix(r.Path, d.Path)
			return d.Path == "" || inside && (rest == "" || rest[0] == '[' || rest[0] == '.') ||
				r.Code == "text_or_html_required" && d.Path == "html"
		}
		if !slices.ContainsFunc(listener, unread) {
			all = append(all, r)
		}
	}
	return all
}

// readSendAt reads the time of sending.
func (l *validSend) readSendAt(s *SendRequest, now time.Time, bad *fault.FieldErrors) {
	at, err := normalizeSendAt(s.SendAt, now)
	if err != nil {
		bad.Add("send_at", err.Code, "%s", err.Message)
	}
	l.sendAt = at
}

// normalizeSendAt validates a time of sending. For the zero time and the last five minutes it
// returns the zero time, because clocks differ. An earlier time, or one more than 30 days ahead, is
// a fault.Invalid.
func normalizeSendAt(at, now time.Time) (time.Time, *fault.Error) {
	switch {
	case at.IsZero():
		return at, nil
	case at.Before(now.Add(-maxSendAtPast)):
		return time.Time{}, fault.New(fault.Invalid, "in_the_past", "This time has passed already.")
	case at.After(now.Add(maxSendAtAhead)):
		return time.Time{}, fault.New(fault.Invalid, "too_far_ahead", "Mail can be scheduled 30 days ahead at most.")
	case !at.After(now):
		return time.Time{}, nil
	}
	return at.UTC().Truncate(time.Microsecond), nil
}

func (l *validSend) readFrom(s *SendRequest, bad *fault.FieldErrors) {
	var err error
	if l.from, err = address.Parse(s.FromEmail); err != nil {
		bad.Add("from_email", "invalid_address", "This must be a bare address such as you@example.com.")
	}
	l.draft.From = headerAddress(s.FromName, l.from)
	if len(s.FromName) > address.MaxDisplayName {
		bad.Add("from_name", "too_long", "A name may have %d bytes.", address.MaxDisplayName)
	} else if err == nil && !strings.ContainsAny(s.FromName, "\r\n\x00") { // reported elsewhere
		l.checkAuthor(bad)
	}
	if s.ReplyTo == "" {
		return
	}
	n, err := address.ParseNameAddr(s.ReplyTo)
	if err != nil {
		bad.Add("reply_to", "invalid_address", "This must be an address such as you@example.com or Name <you@example.com>.")
		return
	}
	l.draft.ReplyTo = []message.Address{headerAddress(n.Name, n.Address)}
}

// checkAuthor rejects an author that mail readers would display differently.
func (l *validSend) checkAuthor(bad *fault.FieldErrors) {
	alone := l.draft.From
	alone.Name = ""
	switch {
	case alone.AuthorProblem() != "":
		bad.Add("from_email", "invalid_address", "Mail readers read this address differently. Use one without quotation marks, such as you@example.com.")
	case l.draft.From.AuthorProblem() != "":
		bad.Add("from_name", "shows_address", "This name shows another address than from_email, or can't be told from one. Give a name without an address.")
	}
}

// readRecipients reads the recipients, each address once; to wins over cc, and cc over bcc.
func (l *validSend) readRecipients(s *SendRequest, bad *fault.FieldErrors) {
	if len(s.To) == 0 {
		bad.Add("to", "required", "Give at least one recipient.")
	}
	seen := map[string]bool{}
	for _, list := range []struct {
		kind   string
		given  []string
		header *[]message.Address
	}{{"to", s.To, &l.draft.To}, {"cc", s.Cc, &l.draft.Cc}, {"bcc", s.Bcc, nil}} {
		for i, text := range list.given {
			if i > 20*MaxRecipients {
				break // more than enough faults
			}
			n, err := address.ParseNameAddr(text)
			if err != nil {
				bad.Add(fmt.Sprintf("%s[%d]", list.kind, i), "invalid_address",
					"This must be an address such as you@example.com or Name <you@example.com>.")
				continue
			}
			if seen[n.Address.Key()] {
				continue
			}
			seen[n.Address.Key()] = true
			l.recipients = append(l.recipients, recipient{Address: n.Address, kind: list.kind})
			if list.header != nil {
				*list.header = append(*list.header, headerAddress(n.Name, n.Address))
			}
		}
	}
	if len(l.recipients) > MaxRecipients {
		bad.Add("to", "too_many_recipients", "A message can have %d recipients in to, cc and bcc together.", MaxRecipients)
	}
}

func (l *validSend) readBody(s *SendRequest, bad *fault.FieldErrors) {
	l.draft.Subject, l.draft.Text, l.draft.HTML = s.Subject, s.Text, s.HTML
	if s.Text == "" && !s.HTMLOnly && len(s.HTML) <= maxText {
		l.draft.Text = message.HTMLToText(s.HTML)
	}
	if strings.TrimSpace(s.Subject) == "" {
		bad.Add("subject", "required", "Give a subject.")
	}
	if len(s.Subject) > maxSubject {
		bad.Add("subject", "too_long", "A subject may have %d bytes.", maxSubject)
	}
	if s.Text == "" && s.HTML == "" {
		bad.Add("text", "text_or_html_required", "Give text, html or both.")
	}
	if len(s.Text) > maxText {
		bad.Add("text", "too_long", "The text may have %d bytes.", maxText)
	}
	if len(s.HTML) > maxText {
		bad.Add("html", "too_long", "The html may have %d bytes.", maxText)
	}
}

func (l *validSend) readAttachments(s *SendRequest, bad *fault.FieldErrors) {
	if len(s.Attachments) > MaxAttachments {
		bad.Add("attachments", "too_many_attachments", "A message can have %d attachments.", MaxAttachments)
	}
	total := int64(0)
	for i, a := range s.Attachments {
		total += a.Size
		if a.Filename == "" {
			bad.Add(fmt.Sprintf("attachments[%d].filename", i), "required", "Give the file a name.")
		}
		switch a.Disposition {
		case "", "attachment", "inline":
		default:
			bad.Add(fmt.Sprintf("attachments[%d].disposition", i), "invalid_disposition", "This is attachment or inline.")
		}
		inline := a.Disposition == "inline" || a.Disposition == "" && a.ContentID != ""
		l.draft.Attachments = append(l.draft.Attachments, message.Attachment{
			Filename: a.Filename, ContentType: a.ContentType, ContentID: a.ContentID, Inline: inline, Open: a.Open,
		})
	}
	if total > MaxAttachmentBytes {
		bad.Add("attachments", "attachments_too_large", "The attachments together may have 25 MB (%d bytes) when decoded.", MaxAttachmentBytes)
	}
}

func (l *validSend) readMetadata(s *SendRequest, bad *fault.FieldErrors) {
	if len(s.Metadata) == 0 || string(s.Metadata) == "null" {
		return
	}
	var object map[string]json.RawMessage
	var compact bytes.Buffer
	switch {
	case len(s.Metadata) > maxMetadata:
		bad.Add("metadata", "too_long", "Metadata may have %d bytes.", maxMetadata)
	case !utf8.Valid(s.Metadata) || json.Unmarshal(s.Metadata, &object) != nil || object == nil || json.Compact(&compact, s.Metadata) != nil:
		bad.Add("metadata", "invalid_metadata", "Metadata is an object.")
	default:
		l.metadata = compact.String()
	}
}

// readTags reads the tags, each once.
func (l *validSend) readTags(tags []string, bad *fault.FieldErrors) {
	if len(tags) > maxRepeatedTags {
		bad.Add("tags", "too_many_tags", "A message can have %d tags.", tag.MaxTags)
		return
	}
	var list []string
	for i, t := range tags {
		switch {
		case !tag.Valid(t):
			bad.Add(fmt.Sprintf("tags[%d]", i), "invalid_tag", "%s", tag.Rule)
		case !slices.Contains(list, t):
			list = append(list, t)
		}
	}
	if len(list) > tag.MaxTags {
		bad.Add("tags", "too_many_tags", "A message can have %d tags.", tag.MaxTags)
	}
	l.tags = tag.Join(list)
}
