// SPDX-License-Identifier: Apache-2.0

package summary

import (
	"bytes"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/mailstead/mailstead/internal/apijson"
	"github.com/mailstead/mailstead/internal/message"
)

// Attachment is a file in a message: any part that is not its text.
type Attachment struct {
	Number      int                `json:"number" doc:"Its number in the message, 0 for the first." example:"0"`
	Filename    string             `json:"filename" doc:"The name that the sender gave it, without folders and control characters; empty if it has none. Two files may have the same." example:"invoice.pdf"`
	ContentType string             `json:"content_type" doc:"The media type that the sender claims." example:"application/pdf"`
	Size        int64              `json:"size" doc:"In bytes when decoded; of broken base64, and of large files in quoted-printable or uuencode, about." example:"48211"`
	ContentID   apijson.NullString `json:"content_id" doc:"By which the HTML shows it, as cid:…" example:"logo"`
	Disposition string             `json:"disposition" enum:"attachment,inline" doc:"inline is shown in place." example:"attachment"`
	URL         apijson.NullString `json:"url" doc:"Where it can be had, with your API key." example:"https://mail.example.com/api/v1/mailboxes/0192f0c1-7a6e-7c3a-b1f2-5a0d9e6c4b21/messages/0192f0c1-7a6e-7c3a-b1f2-5a0d9e6c4b22/attachments/0"`
}

const (
	maxName      = 255
	maxMediaType = 127
	maxContentID = 255
	// maxParam is the number of decoded bytes of a parameter: a sender may write a megabyte of
	// encoded words, each in another charset.
	maxParam = 16 << 10
	// maxSizeDecode is the number of octets of a file that are decoded to determine its size,
	// unless it is in base64.
	maxSizeDecode = 64 << 10
)

func (s *messageReader) attachment(p *message.Part, n int) (Attachment, error) {
	f := Attachment{Number: n, Filename: attachmentName(limitParams(p).Filename()), ContentType: "application/octet-stream", Disposition: "attachment"}
	typ, subtype := p.MediaType()
	if media := typ + "/" + subtype; len(media) <= maxMediaType {
		f.ContentType = media
	}
	f.ContentID = apijson.NullString(CleanText(strings.Trim(strings.TrimSpace(p.ID), "<>"), maxContentID))
	if p.Disposition == "inline" || p.Disposition == "" && f.ContentID != "" {
		f.Disposition = "inline"
	}
	var err error
	f.Size, err = s.size(p)
	return f, err
}

// limitParams returns the part with parameters that are short enough to decode.
func limitParams(p *message.Part) *message.Part {
	q := *p
	for _, list := range []*[]message.Param{&q.Params, &q.DispositionParams} {
		*list = slices.Clone(*list)
		for i := range *list {
			(*list)[i].Value = truncateEncoded((*list)[i].Value, maxParam)
		}
	}
	return &q
}

// size returns a file's decoded size, possibly approximate, without reading all of it.
func (s *messageReader) size(p *message.Part) (int64, error) {
	switch p.Encoding {
	case "base64":
		chars := max(0, p.Body.Len-2*p.Lines) // lines end in CRLF
		tail := make([]byte, min(8, p.Body.Len))
		if _, err := s.r.ReadAt(tail, p.Body.End()-int64(len(tail))); err != nil && err != io.EOF { //nolint:errorlint // what io.ReaderAt promises
			return 0, fmt.Errorf("reading the end of a file of a message: %w", err)
		}
		return max(0, chars/4*3+chars%4*3/4-int64(bytes.Count(tail, []byte("=")))), nil
	case "", "7bit", "8bit", "binary":
	default:
		if p.Body.Len > maxSizeDecode {
			return p.Body.Len, nil
		}
		n, err := io.Copy(io.Discard, p.Decode(s.section(p.Body)))
		if err != nil {
			return 0, fmt.Errorf("reading a file of a message: %w", err)
		}
		return n, nil
	}
	return p.Body.Len, nil
}

// OpenAttachment returns the n-th file of a message with its decoded content; false if there is no
// such file. Reading it takes little memory, regardless of its size.
func OpenAttachment(r io.ReaderAt, ix *message.Structure, n int) (Attachment, io.Reader, bool, error) {
	files := ix.ContentParts().Attachments
	if n < 0 || n >= len(files) {
		return Attachment{}, nil, false, nil
	}
	in := &messageReader{r: r}
	p := &ix.Parts[files[n]]
	f, err := in.attachment(p, n)
	return f, p.Decode(in.section(p.Body)), true, err
}

// attachmentName returns a name that is safe as a file name.
func attachmentName(name string) string {
	name = message.CleanFilename(name)
	if len(name) > maxName {
		return shortenName(name)
	}
	return name
}

// shortenName shortens a name but keeps its extension.
func shortenName(name string) string {
	end := ""
	if i := strings.LastIndexByte(name, '.'); i >= 0 && len(name)-i <= 16 {
		end = name[i:]
	}
	return truncate(name, maxName-len(end)) + end
}
