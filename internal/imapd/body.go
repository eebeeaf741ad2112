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

// body is the bytes of one message and where its parts lie in them.
type body struct {
	size    int64
	bytes   []byte       // all of them, if they stand in the row
	file    *blob.Reader // else
	head    []byte       // of file, its own header, where some section is of that
	index   *message.Index
	decoded []binary // of the BINARY sections, in their places
	preview string
}

// openBody begins to read a message. Its index is only decoded if a section
// needs it: BODY[] does without.
func (f *fetcher) openBody(r *folder.Row) (*body, error) {
	b := r.Bytes
	var err error
	if b == nil { // why not?
		if b, err = f.Folders.Blobs.Load(f.ctx(), r.Blob); err != nil {
			return nil, err
		}
	}
	m := &body{size: b.Size}
	var here bool
	if m.bytes, here = b.Bytes(); !here {
		if m.file, err = b.Open(f.ctx()); err != nil {
			return nil, err
		}
	}
	if !f.parts {
		return m, nil
	}
	if m.index = message.StoredIndex(r.Structure, m.size); m.index != nil {
		return m, nil
	}
	// An index of another release, or none: the bytes tell.
	if m.index, _, err = message.ScanReader(m.at(message.Span{Len: m.size})); err != nil {
		m.close()
		return nil, fmt.Errorf("scanning a message: %w", err)
	}
	return m, nil
}

func (m *body) close() {
	if m.file != nil {
		_ = m.file.Close()
	}
}

// at reads a part of the message.
func (m *body) at(span message.Span) io.Reader {
	switch {
	case m.file == nil:
		return bytes.NewReader(m.bytes[span.Start:span.End()])
	case span.End() <= int64(len(m.head)):
		return bytes.NewReader(m.head[span.Start:span.End()])
	}
	return io.NewSectionReader(m.file, span.Start, span.Len)
}

// readHead reads the header, if it is asked for, before the row begins: a
// program that lists a folder is to see all others, though this one's can't be
// read.
func (f *fetcher) readHead(m *body) (err error) {
	if m.file != nil && f.heads {
		m.head, err = m.header(m.index.Parts[0].Header)
	}
	return err
}

// header returns a header, at most message.MaxHeader bytes of it.
func (m *body) header(span message.Span) (message.Header, error) {
	span.Len = min(span.Len, message.MaxHeader)
	if m.file == nil {
		return message.Header(m.bytes[span.Start:span.End()]), nil
	}
	return io.ReadAll(m.at(span))
}

// needsIndex reports whether a section is more than the whole message.
func needsIndex(sec *wire.Section) bool { return len(sec.Path) > 0 || sec.Part != wire.PartAll }

// isHead reports whether a section is the message's own header, or of it.
func isHead(sec *wire.Section) bool {
	return len(sec.Path) == 0 && !isBinary(sec) && sec.Part != wire.PartAll && sec.Part != wire.PartText
}

// write writes the item of the i-th section of a row.
func (m *body) write(row *wire.FetchRow, sections []wire.Section, i int) error {
	if isBinary(&sections[i]) {
		return m.decoded[i].write(m, row, &sections[i])
	}
	return m.writeSection(row, &sections[i])
}

// writeSection writes one BODY[…] item of a row. A source that fails in the
// middle of a literal fails the Writer, and with it the connection.
func (m *body) writeSection(row *wire.FetchRow, sec *wire.Section) error {
	span, there := message.Span{Len: m.size}, true
	which := sectionOf(sec)
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
	row.Section(sec, count, message.MaskNUL(m.at(span)))
	return nil
}

// maskNUL returns b without NUL, which a literal cannot hold (RFC 3501 §9).
func maskNUL(b []byte) []byte {
	if bytes.IndexByte(b, 0) < 0 {
		return b
	}
	return bytes.ReplaceAll(b, []byte{0}, []byte{128})
}

func sectionOf(sec *wire.Section) message.Section {
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
