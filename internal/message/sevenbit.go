// SPDX-License-Identifier: Apache-2.0

package message

import (
	"bufio"
	"fmt"
	"io"
	"strings"
)

// EncodeResult is the result of making a message 7-bit.
type EncodeResult struct {
	Changed   bool // whether the output differs from the input: scan it again
	NeedsUTF8 bool // whether a part's header has bytes above 127, which requires SMTPUTF8 (RFC 6531); NormalizeHeader handles the message's own header
	Needs8Bit bool // whether a signed or embedded part had to stay unchanged, which requires BODY=8BITMIME (RFC 6152)
}

// EncodeSevenBit writes the message at r so that relays have no reason to change it and its
// signature stays valid (RFC 6376 §5.3). ix is the message's index, and its line ends must be CRLF.
// It re-encodes leaf parts with bytes above 127, NUL or lines over 998 octets in quoted-printable
// or base64. Headers keep all fields except those about the encoding; headers of parts become
// 7-bit, too, with folded lines. multipart/signed and message/… stay unchanged. Errors are those of
// r and w.
//
// A message whose index has none of EightBit, HasNUL, LongLines and HeaderEightBit stays unchanged,
// except that a multipart may no longer claim to be 8bit.
func EncodeSevenBit(w io.Writer, r io.ReaderAt, ix *Structure) (EncodeResult, error) {
	return (&sevenBitEncoder{ix: ix, r: r, unwanted: EightBit | HasNUL | LongLines}).write(w)
}

// EncodeSevenBitNested is EncodeSevenBit for someone else's message to a host without 8BITMIME,
// once no signature of it counts. It also re-encodes the parts of embedded messages (RFC 2045
// §6.4), and with mends it makes the message's own header 7-bit. multipart/signed stays unchanged.
// All of the result is 7-bit unless it reports NeedsUTF8 or Needs8Bit.
func EncodeSevenBitNested(w io.Writer, r io.ReaderAt, ix *Structure, mends bool) (EncodeResult, error) {
	return (&sevenBitEncoder{ix: ix, r: r, unwanted: EightBit | HasNUL | LongLines, nested: true, ownHeader: mends}).write(w)
}

// EncodeNUL writes the message at r, whose index is ix, with the leaf parts that have NUL encoded
// in base64, so that IMAP can show them (RFC 3516 §4.4). Everything else stays unchanged, including
// NUL in headers and in multipart/signed and message/….
func EncodeNUL(w io.Writer, r io.ReaderAt, ix *Structure) error {
	_, err := (&sevenBitEncoder{ix: ix, r: r, unwanted: HasNUL}).write(w)
	return err
}

// write writes the message with unsuitable leaf parts re-encoded.
func (s *sevenBitEncoder) write(w io.Writer) (EncodeResult, error) {
	s.w = bufio.NewWriterSize(w, int(min(s.ix.Size, 32<<10)))
	s.plan()
	for i := 0; i < len(s.ix.Parts) && s.err == nil; {
		i = s.writePart(i)
	}
	s.copyTo(s.ix.Size)
	if s.err == nil {
		s.err = s.w.Flush()
	}
	if s.err != nil {
		return s.result, fmt.Errorf("re-encoding a message: %w", s.err)
	}
	return s.result, nil
}

// sevenBitEncoder writes a message from its start and copies the unchanged pieces.
type sevenBitEncoder struct {
	w             *bufio.Writer
	r             io.ReaderAt
	ix            *Structure
	pos           int64 // everything before it is written or left out
	untouchable   []bool
	keepsEightBit []bool // whether it is, or is around, a part that stays 8-bit
	unwanted      Traits // traits that no part may keep
	nested        bool   // whether embedded messages are changed as well
	ownHeader     bool   // whether the message's own header is changed
	result        EncodeResult
	err           error
}

// plan determines which parts must not be changed, and what stays 8-bit because of them.
func (s *sevenBitEncoder) plan() {
	s.untouchable = make([]bool, len(s.ix.Parts))
	s.keepsEightBit = make([]bool, len(s.ix.Parts))
	for i := range s.ix.Parts {
		p := &s.ix.Parts[i]
		if i > 0 {
			q := &s.ix.Parts[p.Parent]
			s.untouchable[i] = s.untouchable[p.Parent] || q.Kind == Embedded && !s.nested || q.Subtype == "signed"
		}
		// Also containers that were not parsed: RFC 2045 §6.4 allows no encoding for them.
		s.untouchable[i] = s.untouchable[i] || p.Type == "message" && !s.mayEncode(p) || p.Kind == Leaf && p.Type == "multipart" ||
			s.nested && p.Kind != Leaf && !s.headerEndsWithEmptyLine(p) || p.Header.Len > int64(maxHeaderBytes(i)) || !isIdentityEncoding(p.Encoding) && p.Encoding != "base64" && p.Encoding != "quoted-printable"
		embedded := s.ix.isInside(i, Embedded)
		s.result.NeedsUTF8 = s.result.NeedsUTF8 || (i > 0 || s.ownHeader) && s.untouchable[i] && p.Traits&HeaderEightBit != 0 && !embedded
		stays := s.untouchable[i] || p.Kind == Multipart && !s.mayDropPreamble(p)
		if stays && (p.Traits&s.unwanted != 0 || embedded && p.Traits&HeaderEightBit != 0) {
			s.result.Needs8Bit = s.result.Needs8Bit || p.Traits&EightBit != 0 || embedded
			for j := i; j >= 0; j = s.ix.Parts[j].Parent {
				s.keepsEightBit[j] = true
			}
		}
	}
}

// mayEncode reports whether a part of type message may be changed: an embedded message, or a type
// that RFC 6533 §§4-5 allows to be encoded.
func (s *sevenBitEncoder) mayEncode(p *Part) bool {
	return s.nested && (p.Kind == Embedded || strings.HasPrefix(p.Subtype, "global-"))
}

// mayDropPreamble reports whether the text around the parts of a multipart may be left out, so that
// only the delimiters remain.
func (s *sevenBitEncoder) mayDropPreamble(p *Part) bool {
	return p.Subtype != "signed" && isASCII(boundaryParam(p.Params))
}

// writePart writes all changes in a part, and returns the part after it.
func (s *sevenBitEncoder) writePart(i int) int {
	p := &s.ix.Parts[i]
	next := i + 1
	switch {
	case s.untouchable[i]:
		for next < len(s.ix.Parts) && s.ix.Parts[next].Parent >= i {
			next++
		}
	case p.Kind == Leaf:
		if p.Traits&s.unwanted != 0 {
			s.writeLeaf(p)
		} else if s.needsNormalizing(p) {
			s.writeHeader(p, "", "")
		}
	case p.Kind == Multipart:
		if s.needsNormalizing(p) && (p.Encoding == "" || p.Encoding == "7bit" || s.keepsEightBit[i]) {
			s.writeHeader(p, "", "")
		}
		if s.unwanted&EightBit != 0 && p.Encoding != "" && p.Encoding != "7bit" && p.Subtype != "signed" && !s.keepsEightBit[i] {
			s.writeHeader(p, "7bit", "")
		}
		next = s.writeChildren(i)
	case p.Kind == Embedded:
		switch {
		case p.Encoding != "" && p.Encoding != "7bit" && !s.keepsEightBit[i]:
			s.writeHeader(p, "7bit", "")
		case s.needsNormalizing(p):
			s.writeHeader(p, "", "")
		}
		next = s.writePart(next)
	}
	return next
}

// writeChildren writes the changes in the parts of a multipart, and returns the part after them.
// Text around the parts is left out if it is not 7-bit: nobody reads it (RFC 2046 §5.1.1).
func (s *sevenBitEncoder) writeChildren(i int) int {
	p := &s.ix.Parts[i]
	delimiter := "--" + boundaryParam(p.Params)
	dirty := p.Traits&s.unwanted != 0 && s.mayDropPreamble(p)
	between := func(from, to int64, text string) {
		if dirty {
			s.copyTo(from)
			s.print(text)
			s.skipTo(to)
			s.result.Changed = true
		}
	}
	last, next := i, i+1
	for next < len(s.ix.Parts) && s.ix.Parts[next].Parent == i {
		child := &s.ix.Parts[next]
		if last == i {
			between(p.Body.Start, child.Header.Start, delimiter+"\r\n")
		} else {
			between(s.ix.Parts[last].Body.End(), child.Header.Start, "\r\n"+delimiter+"\r\n")
		}
		last = next
		next = s.writePart(next)
	}
	if end := s.ix.Parts[last].Body.End(); end < p.Body.End() {
		between(end, p.Body.End(), "\r\n"+delimiter+"--\r\n")
	}
	return next
}

// writeLeaf writes a part in a 7-bit encoding.
func (s *sevenBitEncoder) writeLeaf(p *Part) {
	body := func() io.Reader {
		return p.Decode(io.NewSectionReader(s.r, p.Body.Start, p.Body.Len))
	}
	prof, err := readProfile(body())
	if err != nil {
		s.err = err
		return
	}
	typ, _ := p.MediaType()
	encoding, charset := "base64", ""
	if typ == "text" && !prof.nul && !prof.bareLineEnds {
		if encoding = prof.textEncoding(); encoding == "7bit" {
			encoding = "quoted-printable"
		}
	}
	if prof.eightBit > 0 && !prof.notUTF8 {
		charset = "utf-8"
	}
	s.writeHeader(p, encoding, charset)
	if s.err == nil {
		s.err = encode(s.w, body(), encoding)
	}
	s.pos = p.Body.End()
	if encoding == "base64" && s.pos == s.ix.Size {
		s.print("\r\n")
	}
}

// needsNormalizing reports whether the header of a part may have to be normalized.
func (s *sevenBitEncoder) needsNormalizing(p *Part) bool {
	return (p.Parent >= 0 || s.ownHeader) && s.unwanted&EightBit != 0 && (p.Traits&HeaderEightBit != 0 || p.Header.Len > maxLineLength)
}

// normalizedHeader returns the header of a part in a form that other hosts accept.
func (s *sevenBitEncoder) normalizedHeader(p *Part, h Header) Header {
	if !s.needsNormalizing(p) {
		return h
	}
	m := fieldNormalizer{charset: s.ix.TextCharset()}
	for f := range h.Fields() {
		m.add(f) // stays long if it can't be folded
	}
	if Header(m.dst).EightBit() {
		if p.Parent >= 0 && (s.ix.Parts[p.Parent].Kind == Embedded || s.ix.isInside(p.Parent, Embedded)) {
			s.result.Needs8Bit = true
		} else {
			s.result.NeedsUTF8 = true
		}
	}
	return m.dst
}

// writeHeader writes the part's header with another encoding; "" leaves it unchanged. If the part
// has a charset but no Content-Type, one is added.
func (s *sevenBitEncoder) writeHeader(p *Part, encoding, charset string) {
	s.copyTo(p.Header.Start)
	s.skipTo(p.Body.Start)
	raw := make([]byte, p.Header.Len)
	if s.err == nil {
		_, s.err = io.ReadFull(io.NewSectionReader(s.r, p.Header.Start, p.Header.Len), raw)
	}
	h := s.normalizedHeader(p, raw)
	if encoding == "" {
		s.print(string(h) + "\r\n")
		s.result.Changed = true
		return
	}
	field := "Content-Transfer-Encoding: " + encoding + "\r\n"
	written := false
	hasType, hasVersion := false, p.Parent >= 0 && s.ix.Parts[p.Parent].Kind != Embedded
	for f := range h.Fields() {
		hasType = hasType || f.Is("Content-Type")
		hasVersion = hasVersion || f.Is("MIME-Version")
		if !f.Is("Content-Transfer-Encoding") {
			s.print(string(f.Raw))
		} else if !written {
			s.print(field)
			written = true
		}
	}
	if !hasVersion {
		s.print("MIME-Version: 1.0\r\n")
	}
	if !hasType && charset != "" {
		s.print("Content-Type: text/plain; charset=" + charset + "\r\n")
	}
	if !written {
		s.print(field)
	}
	s.print("\r\n")
	s.result.Changed = true
}

// headerEndsWithEmptyLine reports whether an empty line ends the header of a part. A substitute for it no
// longer works if an empty line is written below it.
func (s *sevenBitEncoder) headerEndsWithEmptyLine(p *Part) bool {
	end := make([]byte, min(p.Header.Len, 4))
	if s.err == nil {
		_, s.err = io.ReadFull(io.NewSectionReader(s.r, p.Body.Start-int64(len(end)), int64(len(end))), end)
	}
	return string(end) == "\r\n" || string(end) == "\r\n\r\n"
}

func (s *sevenBitEncoder) copyTo(offset int64) {
	if s.err == nil && offset > s.pos {
		_, s.err = io.Copy(s.w, io.NewSectionReader(s.r, s.pos, offset-s.pos))
	}
	s.skipTo(offset)
}

func (s *sevenBitEncoder) skipTo(offset int64) {
	if offset > s.pos {
		s.pos = offset
	}
}

func (s *sevenBitEncoder) print(text string) {
	if s.err == nil {
		_, s.err = s.w.WriteString(text)
	}
}
