// SPDX-License-Identifier: Apache-2.0

package imapd

import (
	"bytes"
	"fmt"
	"io"

	"github.com/mailstead/mailstead/internal/blob"
	"github.com/mailstead/mailstead/internal/folder"
	"github.com/mailstead/mailstead/internal/imapd/wire"
	"github.com/mailstead/mailstead/internal/message"
)

// messageBody is the bytes of one message and the positions of its parts.
type messageBody struct {
	size           int64
	bytes          []byte       // all bytes, if they are stored in the row
	file           *blob.Reader // otherwise
	headerBytes    []byte       // the message's own header, from file, if a section needs it
	index          *message.Structure
	binarySections []binarySection // indexed like the sections; only BINARY ones are used
	preview        string
}

// openBody opens a message. It decodes its index only if a section needs it, unlike BODY[].
func (f *fetcher) openBody(r *folder.MessageRow) (*messageBody, error) {
	b := r.Content
	var err error
	if b == nil { // find out why
		if b, err = f.session.Folders.Blobs.Load(f.session.ctx(), r.BlobID); err != nil {
			return nil, err
		}
	}
	m := &messageBody{size: b.Size}
	var here bool
	if m.bytes, here = b.Bytes(); !here {
		if m.file, err = b.Open(f.session.ctx()); err != nil {
			return nil, err
		}
	}
	if !f.needsIndex {
		return m, nil
	}
	if m.index, err = message.LoadStructure(r.Structure, m.size, m.reader(message.Span{Len: m.size})); err != nil {
		m.close()
		return nil, fmt.Errorf("scanning a message: %w", err)
	}
	return m, nil
}

func (m *messageBody) close() {
	if m.file != nil {
		_ = m.file.Close()
	}
}

// reader returns a reader of a part of the message.
func (m *messageBody) reader(span message.Span) io.Reader {
	switch {
	case m.file == nil:
		return bytes.NewReader(m.bytes[span.Start:span.End()])
	case span.End() <= int64(len(m.headerBytes)):
		return bytes.NewReader(m.headerBytes[span.Start:span.End()])
	}
	return io.NewSectionReader(m.file, span.Start, span.Len)
}

// readHeader reads the header, if needed, before the row begins. A client that lists a folder must
// get all other messages, even if this one can't be read.
func (f *fetcher) readHeader(m *messageBody) (err error) {
	if m.file != nil && f.needsHeader {
		m.headerBytes, err = m.header(m.index.Parts[0].Header)
	}
	return err
}

// header returns a header, at most message.MaxHeader bytes of it.
func (m *messageBody) header(span message.Span) (message.Header, error) {
	span.Len = min(span.Len, message.MaxHeader)
	if m.file == nil {
		return message.Header(m.bytes[span.Start:span.End()]), nil
	}
	return io.ReadAll(m.reader(span))
}

// needsIndex reports whether a section is more than the whole message.
func needsIndex(sec *wire.Section) bool { return len(sec.Path) > 0 || sec.Part != wire.PartAll }

// isTopHeader reports whether a section is the message's own header, or fields of it.
func isTopHeader(sec *wire.Section) bool {
	return len(sec.Path) == 0 && !isBinary(sec) && sec.Part != wire.PartAll && sec.Part != wire.PartText
}

// write writes the item of section i of a row.
func (m *messageBody) write(row *wire.FetchResponse, sections []wire.Section, i int) error {
	if isBinary(&sections[i]) {
		return m.binarySections[i].write(m, row, &sections[i])
	}
	return m.writeSection(row, &sections[i])
}

// writeSection writes one BODY[…] item of a row. A source that fails in the middle of a literal
// fails the Writer, and with it the connection.
func (m *messageBody) writeSection(row *wire.FetchResponse, sec *wire.Section) error {
	span, there := message.Span{Len: m.size}, true
	which := messageSection(sec)
	if needsIndex(sec) {
		span, there = m.index.Section(which)
	}
	switch {
	case !there:
		row.SectionNil(sec)
		return nil
	case sec.Part == wire.PartHeaderFields || sec.Part == wire.PartHeaderFieldsNot:
		h, err := m.header(span)
		if err != nil {
			return err
		}
		fields := message.FilterFields(nil, h, which)
		offset, count := sec.Bounds(int64(len(fields)))
		row.SectionBytes(sec, maskNUL(fields[offset:offset+count]))
		return nil
	}
	offset, count := sec.Bounds(span.Len)
	span = message.Span{Start: span.Start + offset, Len: count}
	if m.file == nil {
		row.SectionBytes(sec, maskNUL(m.bytes[span.Start:span.End()]))
		return nil
	}
	row.Section(sec, count, message.MaskNUL(m.reader(span)))
	return nil
}

// maskNUL returns b without NUL, which a literal can't contain (RFC 3501 §9).
func maskNUL(b []byte) []byte {
	if bytes.IndexByte(b, 0) < 0 {
		return b
	}
	return bytes.ReplaceAll(b, []byte{0}, []byte{128})
}

func messageSection(sec *wire.Section) message.Section {
	out := message.Section{Fields: sec.Fields}
	for _, n := range sec.Path {
		out.Path = append(out.Path, int(n))
	}
	switch sec.Part {
	case wire.PartHeader:
		out.Kind = message.SectionHeader
	case wire.PartHeaderFields:
		out.Kind = message.SectionFields
	case wire.PartHeaderFieldsNot:
		out.Kind = message.SectionFieldsNot
	case wire.PartText:
		out.Kind = message.SectionText
	case wire.PartMIME:
		out.Kind = message.SectionMIME
	}
	return out
}
