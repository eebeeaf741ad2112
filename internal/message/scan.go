// SPDX-License-Identifier: Apache-2.0

package message

import (
	"bytes"
	"encoding/binary"
	"io"
)

// Scan scans a message in memory.
func Scan(b []byte) *Structure {
	var s Scanner
	_, _ = s.Write(b)
	return s.Finish()
}

// ScanReader scans a message read from r, with memory use independent of the message's size. It
// also returns the message's own header, up to MaxHeader bytes. The error is r's; the index then
// covers the bytes read.
func ScanReader(r io.Reader) (*Structure, Header, error) {
	var s Scanner
	_, err := io.CopyBuffer(&s, struct{ io.Reader }{r}, make([]byte, 32<<10))
	ix := s.Finish()
	return ix, s.Header(), err
}

// Scanner scans a message that is written to it piece by piece, for instance while it is spooled.
// The zero Scanner is ready to use. Write never fails.
type Scanner struct {
	ix Structure

	frames         []partFrame // open parts, outermost first
	header         []byte      // the message's own header
	headerBuf      []byte      // the header of the part being read
	lineAt         int         // start of the current line in headerBuf
	lineBuffered   bool        // whether the current line is in headerBuf
	inHeader       bool
	partsFull      bool // MaxParts reached: delimiters are ignored
	openBoundaries int  // frames with an open boundary

	offset           int64 // start of the current line
	lines            int64 // line ends before offset
	eol              int64 // octets of the line end before offset
	envelopeBytes    int   // bytes of envelopes of embedded messages so far
	descriptionBytes int   // bytes of part descriptions so far
	rescanned        int64 // bytes that were read again
	badContentType   bool  // whether the current part has an invalid Content-Type
	partial          []byte
	partLen          int64
	partBits         Traits
	partLast         byte
}

// partFrame is an open part. An empty boundary means that no delimiter can follow.
type partFrame struct {
	part     int
	lines    int64 // lines before the body
	boundary string
}

// Header returns the message's own header, up to MaxHeader bytes. It is valid after Finish.
func (s *Scanner) Header() Header { return s.header }

// Write scans the next bytes of the message.
func (s *Scanner) Write(p []byte) (int, error) {
	s.start()
	n, bits := len(p), traitsOf(p)
	for len(p) > 0 {
		i := bytes.IndexByte(p, '\n')
		switch {
		case i < 0:
			s.holdPartial(p, bits)
			return n, nil
		case s.partLen > 0:
			s.holdPartial(p[:i+1], bits)
			s.endPartial()
		case bits != 0:
			s.scanLine(p[:i+1], int64(i+1), traitsOf(p[:i+1]))
		default:
			s.scanLine(p[:i+1], int64(i+1), 0)
		}
		p = p[i+1:]
	}
	return n, nil
}

// Finish ends the message and returns its index. It may be called again; Write may not.
func (s *Scanner) Finish() *Structure {
	s.start()
	if s.partLen > 0 {
		s.endPartial()
	}
	for s.inHeader {
		if !s.endHeaderAtBody() {
			s.endHeader()
		}
	}
	s.closeDownTo(0, s.offset, s.lines)
	s.ix.Size = s.offset
	for i := range s.ix.Parts {
		p := &s.ix.Parts[i]
		if p.Kind == Multipart && (i+1 == len(s.ix.Parts) || s.ix.Parts[i+1].Parent != i) {
			p.Kind = Leaf
		}
	}
	return &s.ix
}

func (s *Scanner) start() {
	if s.ix.Parts == nil {
		s.ix.Parts = make([]Part, 0, 4)
		s.frames = make([]partFrame, 0, 8)
		s.openPart(-1)
	}
}

// holdPartial buffers the beginning of an incomplete line, as much as a delimiter may have. It also
// adds a header's line to headerBuf.
func (s *Scanner) holdPartial(b []byte, bits Traits) {
	if capacity := 2*maxBoundary - len(s.partial); capacity > 0 {
		s.partial = append(s.partial, b[:min(capacity, len(b))]...)
	}
	if s.inHeader {
		if s.partLen == 0 {
			s.lineAt, s.lineBuffered = len(s.headerBuf), true
		}
		s.appendHeader(b)
	}
	s.partLen += int64(len(b))
	if bits != 0 {
		s.partBits |= traitsOf(b)
	}
	last := s.partLast
	s.partLast = b[len(b)-1]
	if s.partLast == '\n' && int64(len(s.partial)) < s.partLen {
		// A truncated line must still have its line end.
		if len(b) > 1 {
			last = b[len(b)-2]
		}
		s.partial[len(s.partial)-2] = last
		s.partial[len(s.partial)-1] = '\n'
	}
}

func (s *Scanner) endPartial() {
	head, n, bits := s.partial, s.partLen, s.partBits
	s.partial, s.partLen, s.partBits = s.partial[:0], 0, 0
	s.scanLine(head, n, bits)
	s.lineBuffered = false
}

// appendHeader appends to the header of the current part, up to its limit.
func (s *Scanner) appendHeader(b []byte) {
	limit := maxHeaderBytes(len(s.ix.Parts) - 1)
	b = b[:min(len(b), max(0, limit-len(s.headerBuf)))]
	if need := len(s.headerBuf) + len(b); need > cap(s.headerBuf) && need > limit/4 { // append would make it larger than the limit
		s.headerBuf = append(make([]byte, 0, limit), s.headerBuf...)
	}
	s.headerBuf = append(s.headerBuf, b...)
}

// maxHeaderBytes returns the number of bytes that are parsed of the header of a part.
func maxHeaderBytes(part int) int {
	if part == 0 {
		return MaxHeader
	}
	return MaxPartHeader
}

// scanLine scans one line of n octets. head is all of it, or its beginning if it went through
// holdPartial. Only the last line of a message may lack its line end.
func (s *Scanner) scanLine(head []byte, n int64, bits Traits) {
	eol := lineEndLength(head)
	if s.openBoundaries > 0 && len(head) > 2 && head[0] == '-' && head[1] == '-' && !s.partsFull {
		if multipart := s.delimiter(head); multipart >= 0 {
			s.addTraits(multipart, n, eol, bits)
			s.advance(n, eol)
			if s.inHeader {
				s.ix.Parts[len(s.ix.Parts)-1].Header.Start = s.offset
			}
			return
		}
	}
	if s.inHeader {
		if !s.lineBuffered {
			s.appendHeader(head)
		}
		s.headerLine(n, eol, bits)
		return
	}
	s.addTraits(s.frames[len(s.frames)-1].part, n, eol, bits)
	s.advance(n, eol)
}

func (s *Scanner) advance(n, eol int64) {
	s.offset += n
	s.eol = eol
	if eol > 0 {
		s.lines++
	}
}

// addTraits records the traits of a line of a part's body.
func (s *Scanner) addTraits(part int, n, eol int64, bits Traits) {
	if n-eol > maxLineLength {
		bits |= LongLines
	}
	if bits != 0 {
		s.ix.Parts[part].Traits |= bits
	}
}

func (s *Scanner) headerLine(n, eol int64, bits Traits) {
	s.advance(n, eol)
	if n == eol {
		if !s.endHeaderAtBody() {
			s.endHeader()
		}
		return
	}
	s.ix.Parts[len(s.ix.Parts)-1].Traits |= headerTraits(bits)
}

// headerTraits converts traits of bytes to those of a header.
func headerTraits(bits Traits) (t Traits) {
	if bits&EightBit != 0 {
		t |= HeaderEightBit
	}
	if bits&HasNUL != 0 {
		t |= HeaderNUL
	}
	return t
}

// openPart starts a part; its header follows.
func (s *Scanner) openPart(parent int) {
	s.ix.Parts = append(s.ix.Parts, Part{Parent: parent, Header: Span{Start: s.offset}})
	s.frames = append(s.frames, partFrame{part: len(s.ix.Parts) - 1})
	s.inHeader = true
	s.headerBuf = s.headerBuf[:0]
}

// endHeader ends the header of the innermost part before the current offset and determines the kind
// of its body.
func (s *Scanner) endHeader() {
	f := &s.frames[len(s.frames)-1]
	p := &s.ix.Parts[f.part]
	p.Header.Len = s.offset - p.Header.Start
	p.Body.Start = s.offset
	f.lines = s.lines
	s.inHeader = false
	s.describePart(p)
	if f.part == 0 {
		s.header, s.headerBuf = s.headerBuf, nil
	}
	container := p.Type == "multipart" || p.isMessage()
	if container && len(s.frames) >= MaxDepth {
		p.Traits |= TooDeep
		return
	}
	switch {
	case p.Type == "multipart":
		b := boundaryParam(p.Params)
		if b != "" && len(b) <= maxBoundary {
			p.Kind = Multipart
			f.boundary = b
			s.openBoundaries++
		}
	case container && isIdentityEncoding(p.Encoding) && len(s.ix.Parts) < MaxParts:
		p.Kind = Embedded
		s.openPart(f.part)
	}
}

// delimiter processes the line at the current offset if it is a delimiter of an open multipart (RFC
// 2046 §5.1.1). If the line begins with several boundaries, the longest one counts, and the
// innermost of equal ones. It returns that multipart, or -1.
func (s *Scanner) delimiter(full []byte) int {
	line := full[2:]
	at := -1
	for i := len(s.frames) - 1; i >= 0; i-- {
		b := s.frames[i].boundary
		if b != "" && len(line) >= len(b) && string(line[:len(b)]) == b &&
			(at < 0 || len(b) > len(s.frames[at].boundary)) {
			at = i
		}
	}
	if at < 0 {
		return -1
	}
	multipart := s.frames[at].part
	rest := line[len(s.frames[at].boundary):]
	closing := len(rest) >= 2 && rest[0] == '-' && rest[1] == '-'
	if !closing && len(s.ix.Parts) >= MaxParts {
		s.partsFull = true
		return -1
	}
	if s.inHeader && s.lineBuffered {
		s.headerBuf = s.headerBuf[:s.lineAt] // the delimiter is not part of the header
	}
	for s.inHeader {
		if s.endHeaderAtBody() {
			return s.delimiter(full) // perhaps of a part that this found
		}
		s.endHeader()
	}
	end, lines := s.offset, s.lines
	if s.eol > 0 {
		end, lines = end-s.eol, lines-1
	}
	s.closeDownTo(at+1, end, lines)
	if closing {
		s.frames[at].boundary = ""
		s.openBoundaries--
	} else {
		s.openPart(multipart)
	}
	return multipart
}

// closeDownTo ends the bodies of all frames from depth on at offset end, or at the current offset
// if the line end before it already ended a header.
func (s *Scanner) closeDownTo(depth int, end, lines int64) {
	for len(s.frames) > depth {
		f := s.frames[len(s.frames)-1]
		p := &s.ix.Parts[f.part]
		if end < p.Body.Start {
			end, lines = s.offset, s.lines
		}
		p.Body.Len = end - p.Body.Start
		p.Lines = lines - f.lines
		if f.boundary != "" {
			s.openBoundaries--
		}
		s.frames = s.frames[:len(s.frames)-1]
	}
}

func boundaryParam(params []Param) string {
	for _, p := range params {
		if p.Name == "boundary" {
			return p.Value
		}
	}
	return ""
}

// isIdentityEncoding reports whether an encoding leaves bytes unchanged.
func isIdentityEncoding(encoding string) bool {
	return encoding == "" || encoding == "7bit" || encoding == "8bit" || encoding == "binary"
}

func lineEndLength(line []byte) int64 {
	n := len(line)
	if n == 0 || line[n-1] != '\n' {
		return 0
	}
	if n > 1 && line[n-2] == '\r' {
		return 2
	}
	return 1
}

// traitsOf checks for bytes above 127 and for NUL, eight at a time.
func traitsOf(b []byte) Traits {
	const ones, highs = 0x0101010101010101, 0x8080808080808080
	var all, zero uint64
	for len(b) >= 8 {
		w := binary.LittleEndian.Uint64(b)
		all |= w
		zero |= (w - ones) &^ w & highs
		b = b[8:]
	}
	for _, c := range b {
		all |= uint64(c)
		if c == 0 {
			zero = 1
		}
	}
	var t Traits
	if all&highs != 0 {
		t |= EightBit
	}
	if zero != 0 {
		t |= HasNUL
	}
	return t
}
