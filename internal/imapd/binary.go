// SPDX-License-Identifier: Apache-2.0

package imapd

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/mailstead/mailstead/internal/blob"
	"github.com/mailstead/mailstead/internal/imapd/wire"
	"github.com/mailstead/mailstead/internal/message"
)

// binarySection is the response to a BINARY[…] item: part of a section without its transfer
// encoding (RFC 3516).
type binarySection struct {
	ctx     context.Context
	part    *message.Part // nil for data without an encoding
	span    message.Span
	missing bool  // whether the section does not exist
	size    int64 // of the response
	hasNUL  bool  // whether it contains NUL
}

// isBinary reports whether a section is a BINARY section (RFC 3516).
func isBinary(sec *wire.Section) bool {
	return sec.Kind == wire.SectionBinary || sec.Kind == wire.SectionBinarySize
}

// measureBinary decodes the BINARY sections of a FETCH once to determine their sizes, which precede
// the bytes. It returns a NO [UNKNOWN-CTE] for an unknown encoding.
func (f *fetcher) measureBinary(m *messageBody) error {
	if !f.hasBinary {
		return nil
	}
	chunk := f.session.copyBuffer()
	defer f.session.copyBuffers.Put(chunk)
	m.binarySections = make([]binarySection, len(f.cmd.Sections))
	for i := range m.binarySections {
		sec, b := &f.cmd.Sections[i], &m.binarySections[i]
		if !isBinary(sec) {
			continue
		}
		b.ctx, b.span.Len = f.session.ctx(), m.size
		if err := b.locate(m, sec); err != nil {
			return err
		}
		if err := b.measure(m, sec, *chunk); err != nil {
			return fmt.Errorf("decoding a part: %w", err)
		}
	}
	return nil
}

func (b *binarySection) locate(m *messageBody, sec *wire.Section) error {
	if len(sec.Path) == 0 {
		return nil
	}
	part := m.index.Part(messageSection(sec).Path)
	switch {
	case part == nil:
		b.missing = true
		return nil
	case !part.Decodable():
		return no(wire.CodeUnknownCTE, "The transfer encoding of a part is unknown.")
	case part.Kind == message.Leaf: // of a part with subparts only those are encoded (RFC 2045 §6.4)
		b.part = part
	}
	b.span = part.Body
	return nil
}

// measure determines the size of the response, and whether it contains NUL.
func (b *binarySection) measure(m *messageBody, sec *wire.Section, chunk []byte) error {
	if b.missing {
		return nil
	}
	r, err := b.open(m, sec)
	if err != nil {
		return err
	}
	for {
		n, err := r.Read(chunk)
		b.size += int64(n)
		b.hasNUL = b.hasNUL || bytes.IndexByte(chunk[:n], 0) >= 0
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// open returns a reader of the decoded bytes that the section requests.
func (b *binarySection) open(m *messageBody, sec *wire.Section) (io.Reader, error) {
	r := blob.ContextReader(b.ctx, m.reader(b.span)) // many sections may decode a large part repeatedly
	if b.part != nil {
		r = b.part.Decode(r)
	}
	if !sec.HasPartial {
		return r, nil
	}
	if _, err := io.CopyN(io.Discard, r, int64(sec.Offset)); err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	return io.LimitReader(r, int64(sec.Count)), nil
}

// write writes the item.
func (b *binarySection) write(m *messageBody, row *wire.FetchResponse, sec *wire.Section) error {
	switch {
	case sec.Kind == wire.SectionBinarySize:
		row.SectionSize(sec, b.size)
	case b.missing:
		row.SectionNil(sec)
	default:
		r, err := b.open(m, sec)
		if err != nil {
			return err
		}
		row.SectionBinary(sec, b.size, b.hasNUL, r)
	}
	return nil
}
