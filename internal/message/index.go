// SPDX-License-Identifier: Apache-2.0

package message

import (
	"io"
	"strings"
)

// Span is a range of bytes of a message.
type Span struct{ Start, Len int64 }

// End returns the offset after the last byte.
func (s Span) End() int64 { return s.Start + s.Len }

// Kind says what a part is made of.
type Kind uint8

// The kinds of part.
const (
	Leaf      Kind = iota // content; also a multipart or message that could not be taken apart
	Multipart             // parts
	Embedded              // message/rfc822 or message/global: one child, which is that message
)

// Traits says what a part's own bytes are like (not those of its children).
type Traits uint8

// The traits of a part.
const (
	EightBit       Traits = 1 << iota // the body holds bytes above 127
	HasNUL                            // the body holds NUL
	LongLines                         // the body holds lines over 998 octets
	HeaderEightBit                    // the header holds bytes above 127
	HeaderNUL                         // the header holds NUL
	TooDeep                           // lies below MaxNameLevels, so was not taken apart
)

// Param is a parameter of ContentParts-Type or ContentParts-Disposition. Pieces that
// RFC 2231 split are put together: the name then ends in "*" if the value is
// still in the form charset'language'percent-encoded.
type Param struct{ Name, Value string }

// Part is a message or a part of one.
type Part struct {
	Kind   Kind
	Traits Traits
	Parent int   // place in Index.Parts, always before this part; -1 for the message itself
	Header Span  // with the empty line that ends it
	Body   Span  // without the line end that belongs to the delimiter after it
	Lines  int64 // line ends in the body

	Type, Subtype     string // lower case, never empty
	Params            []Param
	Encoding          string // Content-Transfer-Encoding, lower case; "" if not said
	ID                string // Content-ID
	Description       string
	MD5               string
	Disposition       string // lower case; "" if not said
	DispositionParams []Param
	Languages         []string
	Location          string
	Envelope          []byte // of an Embedded part: that message's, in IMAP's wire form
}

// Index is what a scan of a message found: its parts, each parent before its
// children, in the order of their bytes. Parts[0] is the message itself.
type Index struct {
	Size  int64
	Parts []Part
}

// Span returns all of the part, header and body.
func (p *Part) Span() Span { return Span{p.Header.Start, p.Body.End() - p.Header.Start} }

// Param returns the value of a ContentParts-Type parameter as UTF-8, or "".
func (p *Part) Param(name string) string { return paramText(p.Params, name) }

// Filename returns the name that the part's sender gave the file, as UTF-8,
// or "". It may hold anything, path separators too.
func (p *Part) Filename() string {
	if s := paramText(p.DispositionParams, "filename"); s != "" {
		return s
	}
	return paramText(p.Params, "name")
}

// MediaType returns the type and subtype to show for the part. A multipart in
// which no part was found is readable as text/plain; what could not be taken
// apart for other reasons is application/octet-stream. A message/global is told
// as message/rfc822: in IMAP only that has parts for all clients (RFC 9051 §9
// has both, RFC 3501 one).
func (p *Part) MediaType() (typ, subtype string) {
	switch {
	case p.Kind == Embedded:
		return "message", "rfc822"
	case p.Kind == Leaf && p.Type == "multipart" && p.Traits&TooDeep == 0:
		return "text", "plain"
	case p.Kind == Leaf && (p.Type == "multipart" || p.isMessage()):
		return "application", "octet-stream"
	}
	return p.Type, p.Subtype
}

// isMessage reports whether the part says that it is a message (RFC 2046
// §5.2.1, RFC 6532 §3.7).
func (p *Part) isMessage() bool {
	return p.Type == "message" && (p.Subtype == "rfc822" || p.Subtype == "global")
}

// ReadHeader reads the header of the part, which begins at r, as far as it is read for
// fields. The errors are r's.
func (p *Part) ReadHeader(r io.Reader) (Header, error) {
	limit := int64(MaxPartHeader)
	if p.Parent < 0 {
		limit = MaxHeader
	}
	h := make([]byte, min(p.Header.Len, limit))
	n, err := io.ReadFull(r, h)
	if err == io.EOF || err == io.ErrUnexpectedEOF { //nolint:errorlint // what io.ReadFull promises
		err = nil
	}
	return h[:n], err
}

// Has reports whether any part has one of these traits.
func (ix *Index) Has(t Traits) bool {
	for i := range ix.Parts {
		if ix.Parts[i].Traits&t != 0 {
			return true
		}
	}
	return false
}

// ResizeHeader moves all offsets to what they are once the message's own
// header takes n bytes, the empty line included: for when fields were put on
// top of it or taken out. Content fields must not have changed.
func (ix *Index) ResizeHeader(n int64) {
	delta := n - ix.Parts[0].Header.Len
	ix.Size += delta
	ix.Parts[0].Header.Len = n
	ix.Parts[0].Body.Start += delta
	for i := 1; i < len(ix.Parts); i++ {
		ix.Parts[i].Header.Start += delta
		ix.Parts[i].Body.Start += delta
	}
}

// isInside reports whether the part lies in a part of this kind.
func (ix *Index) isInside(i int, k Kind) bool {
	for i = ix.Parts[i].Parent; i >= 0; i = ix.Parts[i].Parent {
		if ix.Parts[i].Kind == k {
			return true
		}
	}
	return false
}

// RequiredExtensions says what the message needs to go out as it is: SMTPUTF8 for bytes above
// 127 in a header (RFC 6531), 8BITMIME for others, and for the headers of messages
// within it.
func (ix *Index) RequiredExtensions() (utf8, eightBit bool) {
	for i := range ix.Parts {
		t, embedded := ix.Parts[i].Traits, ix.isInside(i, Embedded)
		utf8 = utf8 || t&HeaderEightBit != 0 && !embedded
		eightBit = eightBit || t&EightBit != 0 || t&HeaderEightBit != 0 && embedded
	}
	return utf8, eightBit
}

// child returns the place of the n-th child (from 1) of a part, or -1.
func (ix *Index) child(parent, n int) int {
	for i := parent + 1; i < len(ix.Parts) && ix.Parts[i].Parent >= parent; i++ {
		if ix.Parts[i].Parent == parent {
			if n--; n == 0 {
				return i
			}
		}
	}
	return -1
}

// paramText prefers the RFC 2231 form, whose charset is known.
func paramText(params []Param, name string) string {
	for _, p := range params {
		if base, ok := strings.CutSuffix(p.Name, "*"); ok && base == name {
			return decodeExtended(p.Value)
		}
	}
	for _, p := range params {
		if p.Name == name {
			return DecodeWords(p.Value)
		}
	}
	return ""
}
