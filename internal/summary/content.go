// SPDX-License-Identifier: Apache-2.0

package summary

import (
	"fmt"
	"io"
	"strconv"

	"github.com/mailstead/mailstead/internal/apijson"
	"github.com/mailstead/mailstead/internal/message"
)

// Content is the content of a message besides its Summary.
type Content struct {
	ReplyTo    []Address `json:"reply_to" doc:"Where answers go, if not to the authors; at most 50."`
	InReplyTo  string    `json:"in_reply_to" doc:"The Message-ID of the message that this answers; empty if it answers none." example:"<abc@example.com>"`
	References []string  `json:"references" doc:"The Message-IDs of the conversation so far, the nearest last; the last 20." example:"<abc@example.com>"`

	Headers          []HeaderField `json:"headers" doc:"The fields of the header, in order: at most 500, of 32 KiB together."`
	HeadersTruncated bool          `json:"headers_truncated" doc:"Whether the header has more than headers shows." example:"false"`

	Text          *string `json:"text" doc:"The plain text in UTF-8, at most 64 KiB, with line feeds as line ends; null if the message has none." example:"Thank you!\n"`
	TextTruncated bool    `json:"text_truncated" doc:"Whether there is more of the plain text." example:"false"`
	HTML          *string `json:"html" doc:"The HTML in UTF-8, at most 64 KiB; null if the message has none. It is as the sender wrote it: clean it before you show it." example:"<p>Thank you!</p>"`
	HTMLTruncated bool    `json:"html_truncated" doc:"Whether there is more of the HTML." example:"false"`

	Attachments          []Attachment `json:"attachments" doc:"The files of the message, those shown in its HTML too; at most 100."`
	AttachmentsTruncated bool         `json:"attachments_truncated" doc:"Whether there are more files." example:"false"`
}

// HeaderField is one field of a header.
type HeaderField struct {
	Name  string `json:"name" doc:"As it stands in the message." example:"List-Id"`
	Value string `json:"value" doc:"On one line, encoded words decoded." example:"News <news.example.org>"`
}

// Read reads the content of a message: its header, and its texts up to the limits. ix is the index
// of its parts. The errors are r's.
func Read(r io.ReaderAt, ix *message.Structure) (Summary, Content, error) {
	in := &messageReader{r}
	header, err := in.header(ix)
	if err != nil {
		return Summary{}, Content{}, err
	}
	parts := ix.ContentParts()
	c := Content{ReplyTo: NewAddresses(header.Addresses("Reply-To")), References: references(header)}
	if ids := message.ParseMessageIDs(header.Unfolded("In-Reply-To")); len(ids) > 0 {
		c.InReplyTo = CleanText(ids[0], maxID)
	}
	c.Headers, c.HeadersTruncated = headerFields(header)
	if c.Text, c.TextTruncated, err = in.text(ix, parts.Text); err != nil {
		return Summary{}, Content{}, err
	}
	if c.HTML, c.HTMLTruncated, err = in.text(ix, parts.HTML); err != nil {
		return Summary{}, Content{}, err
	}
	c.Attachments = []Attachment{}
	shown := parts.Attachments[:min(len(parts.Attachments), MaxAttachments)]
	for n, i := range shown {
		f, err := in.attachment(&ix.Parts[i], n)
		if err != nil {
			return Summary{}, Content{}, err
		}
		c.Attachments = append(c.Attachments, f)
	}
	c.AttachmentsTruncated = len(shown) < len(parts.Attachments)
	return FromHeader(header), c, nil
}

// ReadSummary reads only the header. The errors are r's.
func ReadSummary(r io.ReaderAt, ix *message.Structure) (Summary, error) {
	header, err := (&messageReader{r}).header(ix)
	return FromHeader(header), err
}

// EmptyContent is the content of a deleted message.
func EmptyContent() Content {
	return Content{ReplyTo: []Address{}, References: []string{}, Headers: []HeaderField{}, Attachments: []Attachment{}}
}

// SetURLs sets the URL of each attachment, below the message's URL.
func (c *Content) SetURLs(message string) {
	for i := range c.Attachments {
		c.Attachments[i].URL = apijson.NullString(message + "/attachments/" + strconv.Itoa(c.Attachments[i].Number))
	}
}

func references(h message.Header) []string {
	ids := message.ParseMessageIDs(h.Unfolded("References"))
	ids = ids[max(0, len(ids)-maxReferences):]
	out := make([]string, len(ids))
	for i, id := range ids {
		out[i] = CleanText(id, maxID)
	}
	return out
}

// headerFields returns the fields of a header up to the limits. It skips lines that are not a
// field.
func headerFields(h message.Header) (list []HeaderField, more bool) {
	list = []HeaderField{}
	capacity := MaxHeaderBytes
	for f := range h.Fields() {
		if len(f.Name) == 0 {
			continue
		}
		if len(list) == MaxHeaderFields || len(f.Name) >= capacity {
			return list, true
		}
		capacity -= len(f.Name)
		raw := f
		if len(raw.Value) > 4*capacity {
			raw.Value = []byte(truncateEncoded(string(raw.Value[:4*capacity+1]), 4*capacity)) // the rest would not be shown
			more = true
		}
		value := raw.Decoded()
		if len(value) > capacity {
			more = true
		}
		value = CleanText(value, capacity)
		capacity -= len(value)
		list = append(list, HeaderField{Name: string(f.Name), Value: value})
		if more {
			return list, true
		}
	}
	return list, false
}

// messageReader reads parts of a message.
type messageReader struct{ r io.ReaderAt }

func (s *messageReader) section(span message.Span) *io.SectionReader {
	return io.NewSectionReader(s.r, span.Start, span.Len)
}

func (s *messageReader) header(ix *message.Structure) (message.Header, error) {
	p := &ix.Parts[0]
	b, err := p.ReadHeader(s.section(p.Header))
	if err != nil {
		return nil, fmt.Errorf("reading the header of a message: %w", err)
	}
	return b, nil
}
