// SPDX-License-Identifier: Apache-2.0

package outbound

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"strings"

	"github.com/mailstead/mailstead/internal/blob"
	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/message"
	"github.com/mailstead/mailstead/internal/template"
)

// maxVariableErrors is the maximum number of invalid variables named in the one line of an SMTP
// reply.
const maxVariableErrors = 5

// renderTemplate renders the template that a submission names by id or alias.
func (o *Outbox) renderTemplate(ctx context.Context, account db.ID, w *submitOptions) (template.RenderResult, error) {
	used, err := o.Templates.NewRenderer(account).Render(ctx, w.template, json.RawMessage(w.variables))
	var f *fault.Error
	switch {
	case fault.Is(err, fault.NotFound):
		return used, invalidOption(optionTemplate, "There is no template with this id or alias.")
	case errors.As(err, &f) && f.Kind == fault.Invalid:
		var whys []string
		for _, one := range f.Fields[:min(len(f.Fields), maxVariableErrors)] {
			whys = append(whys, one.Path+": "+one.Message)
		}
		return used, invalidOption(optionVariables, strings.Join(whys, " "))
	}
	return used, err
}

// applyTemplate replaces subject and text of a submitted message by a rendered template; other
// fields and attachments stay. The caller discards the returned blob.
func (o *Outbox) applyTemplate(ctx context.Context, used *template.RenderResult, raw *blob.Blob, index *message.Structure, h message.Header) (*blob.Blob, *message.Structure, error) {
	source, err := raw.Open(ctx)
	if err != nil {
		return nil, nil, err
	}
	defer source.Close() //nolint:errcheck // only read
	d := &message.Draft{
		From: message.Address{Local: "x", Domain: "x.invalid"}, MessageID: "<x@x.invalid>", // this header isn't used
		Subject: used.Subject, HTML: used.HTML, Text: used.Text, Attachments: readAttachments(source, index),
	}
	if err := d.Check(); err != nil {
		return nil, nil, invalidOption(optionTemplate, "The message has an attachment whose fields can't be read, or the subject has line breaks.")
	}
	pipe, in := io.Pipe()
	written := make(chan struct{})
	go func() {
		defer close(written)
		_, err := message.Compose(&headerReplacer{w: in, keep: h}, d)
		in.CloseWithError(err)
	}()
	made, index, _, err := o.spool(ctx, pipe)
	_ = pipe.Close() // unblocks a writer that nobody reads from
	<-written
	return made, index, err
}

// readAttachments returns the attachments of a message.
func readAttachments(source io.ReaderAt, index *message.Structure) (list []message.Attachment) {
	for _, i := range index.ContentParts().Attachments {
		p := &index.Parts[i]
		typ, subtype := p.MediaType()
		a := message.Attachment{
			Filename: cleanFilename(p.Filename()), ContentType: typ + "/" + subtype, Inline: p.Disposition == "inline" || p.ID != "",
			Open: func() (io.ReadCloser, error) {
				return io.NopCloser(p.Decode(io.NewSectionReader(source, p.Body.Start, p.Body.Len))), nil
			},
		}
		if charset := p.Param("charset"); isHeaderName(charset) {
			a.ContentType += "; charset=" + charset
		}
		if message.IsUsableMessageID("<" + strings.Trim(p.ID, "<>") + ">") {
			a.ContentID = p.ID
		}
		list = append(list, a)
	}
	return list
}

func cleanFilename(name string) string {
	return db.CleanText(strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return -1
		}
		return r
	}, name), 255)
}

// headerReplacer passes on a composed message with another header. Of the composed header it keeps
// the subject and the fields that describe the content.
type headerReplacer struct {
	w    io.Writer
	keep message.Header
	head []byte // header bytes until the end of the header
	done bool
}

// Write implements io.Writer.
func (r *headerReplacer) Write(p []byte) (int, error) {
	if r.done {
		return r.w.Write(p)
	}
	r.head = append(r.head, p...)
	end := bytes.Index(r.head, []byte("\r\n\r\n"))
	if end < 0 {
		return len(p), nil
	}
	r.done = true
	var out []byte
	for f := range r.keep.Fields() {
		if len(f.Name) > 0 && !isContentField(f) {
			out = append(append(out, bytes.TrimRight(f.Raw, "\r\n")...), "\r\n"...)
		}
	}
	for f := range message.Header(r.head[:end+2]).Fields() {
		if isContentField(f) {
			out = append(out, f.Raw...)
		}
	}
	if _, err := r.w.Write(append(out, r.head[end+2:]...)); err != nil {
		return 0, err
	}
	return len(p), nil
}

// isContentField reports whether a field is the subject or describes the content.
func isContentField(f message.Field) bool {
	const prefix = "Content-"
	return f.Is("Subject") || f.Is("MIME-Version") || len(f.Name) > len(prefix) && strings.EqualFold(string(f.Name[:len(prefix)]), prefix)
}
