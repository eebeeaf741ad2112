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

// Kind is the kind of a part.
type Kind uint8

// Kinds of parts.
const (
	Leaf      Kind = iota // content; also a multipart or message that could not be parsed
	Multipart             // parts
	Embedded              // message/rfc822 or message/global: one child, which is that message
)

// Traits are properties of a part's own bytes (not those of its children).
type Traits uint8

// Traits of a part.
const (
	EightBit       Traits = 1 << iota // the body has bytes above 127
	HasNUL                            // the body has NUL
	LongLines                         // the body has lines over 998 octets
	HeaderEightBit                    // the header has bytes above 127
	HeaderNUL                         // the header has NUL
	TooDeep                           // the part is below MaxDepth and was not parsed
)

// Param is a parameter of Content-Type or Content-Disposition. The pieces of an RFC 2231 parameter
// are joined: its name then ends in "*" if the value is still in the form
// charset'language'percent-encoded.
type Param struct{ Name, Value string }

// Part is a message or a part of one.
type Part struct {
	Kind   Kind
	Traits Traits
	Parent int   // index in Index.Parts, always before this part; -1 for the message itself
	Header Span  // with the empty line at its end
	Body   Span  // without the line end that belongs to the next delimiter
	Lines  int64 // number of line ends in the body

	Type, Subtype     string // lower case, never empty
	Params            []Param
	Encoding          string // Content-Transfer-Encoding, lower case; "" if missing
	ID                string // Content-ID
	Description       string
	MD5               string
	Disposition       string // lower case; "" if missing
	DispositionParams []Param
	Languages         []string
	Location          string
	Envelope          []byte // of an Embedded part: that message's, in IMAP's wire form
}

// Structure is the result of scanning a message: its parts in byte order, each parent before its
// children. Parts[0] is the message itself.
type Structure struct {
	Size  int64
	Parts []Part
}

// Span returns the range of the whole part, header and body.
func (p *Part) Span() Span { return Span{p.Header.Start, p.Body.End() - p.Header.Start} }

// Param returns the value of a Content-Type parameter as UTF-8, or "".
func (p *Part) Param(name string) string { return decodeParam(p.Params, name) }

// Filename returns the sender's file name for the part, as UTF-8, or "". It may contain anything,
// including path separators.
func (p *Part) Filename() string {
	if s := decodeParam(p.DispositionParams, "filename"); s != "" {
		return s
	}
	return decodeParam(p.Params, "name")
}

// MediaType returns the type and subtype to show for the part. A multipart without parts is
// readable as text/plain; other containers that could not be parsed are application/octet-stream. A
// message/global is shown as message/rfc822, since only that has parts for all IMAP clients (RFC
// 9051 §9 has both, RFC 3501 one).
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

// isMessage reports whether the part's type is a message (RFC 2046 §5.2.1, RFC 6532 §3.7).
func (p *Part) isMessage() bool {
	return p.Type == "message" && (p.Subtype == "rfc822" || p.Subtype == "global")
}

// ReadHeader reads the header of the part, which begins at r, up to the parsing limit. The errors
// are r's.
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
func (ix *Structure) Has(t Traits) bool {
	for i := range ix.Parts {
		if ix.Parts[i].Traits&t != 0 {
			return true
		}
	}
	return false
}

// ResizeHeader adjusts all offsets to a message header of n bytes, including the empty line, after
// fields were prepended or removed. Content fields must be unchanged.
func (ix *Structure) ResizeHeader(n int64) {
	delta := n - ix.Parts[0].Header.Len
	ix.Size += delta
	ix.Parts[0].Header.Len = n
	ix.Parts[0].Body.Start += delta
	for i := 1; i < len(ix.Parts); i++ {
		ix.Parts[i].Header.Start += delta
		ix.Parts[i].Body.Start += delta
	}
}

// isInside reports whether the part is in a part of the given kind.
func (ix *Structure) isInside(i int, k Kind) bool {
	for i = ix.Parts[i].Parent; i >= 0; i = ix.Parts[i].Parent {
		if ix.Parts[i].Kind == k {
			return true
		}
	}
	return false
}

// RequiredExtensions returns the SMTP extensions that the message needs to be sent unchanged:
// SMTPUTF8 for bytes above 127 in a header (RFC 6531), 8BITMIME for others, including headers of
// embedded messages.
func (ix *Structure) RequiredExtensions() (utf8, eightBit bool) {
	for i := range ix.Parts {
		t, embedded := ix.Parts[i].Traits, ix.isInside(i, Embedded)
		utf8 = utf8 || t&HeaderEightBit != 0 && !embedded
		eightBit = eightBit || t&EightBit != 0 || t&HeaderEightBit != 0 && embedded
	}
	return utf8, eightBit
}

// child returns the index of the n-th child (from 1) of a part, or -1.
func (ix *Structure) child(parent, n int) int {
	for i := parent + 1; i < len(ix.Parts) && ix.Parts[i].Parent >= parent; i++ {
		if ix.Parts[i].Parent == parent {
			if n--; n == 0 {
				return i
			}
		}
	}
	return -1
}

// decodeParam returns a parameter's value as UTF-8. It prefers the RFC 2231 form, which has a
// charset.
func decodeParam(params []Param, name string) string {
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
