// SPDX-License-Identifier: Apache-2.0

package message

import (
	"bytes"
	"strings"

	"github.com/mailstead/mailstead/internal/fault"
)

// The fields of which a message has one (RFC 5322 §3.6, RFC 2045 §3). From and Sender,
// which Authors looks at, are not among them.
var (
	singletonFields = []string{"Date", "Message-ID", "Subject", "MIME-Version", "Content-Type", "Content-Transfer-Encoding", "Content-Disposition", "Content-ID"}
	mergeableFields = []string{"To", "Cc", "Reply-To", "In-Reply-To", "References"}
)

// NormalizeHeader returns the header of a message from its author as other hosts want it:
// 7-bit but for addresses, lines of at most 998 octets, no field twice of those that
// may occur once. A Date or Message-ID that can't be read is left out, to be added.
// charset is that of the message's text, for bytes that are no UTF-8. What has no plain
// meaning is a fault.Invalid.
func NormalizeHeader(h Header, charset string) (Header, error) {
	m := fieldNormalizer{charset: charset}
	m.dst = make([]byte, 0, len(h)+64)
	joined := h.mergedValues()
	once := map[string]string{}
	at := 0
	for f := range h.Fields() {
		at += len(f.Raw)
		name := strings.ToLower(string(f.Name))
		switch {
		case name == "" && at == len(f.Raw) && (bytes.HasPrefix(f.Raw, []byte("From ")) || bytes.HasPrefix(f.Raw, []byte(">From "))):
			continue // of an mbox
		case name == "":
			return nil, fault.New(fault.Invalid, "invalid_header", "A line of the message's header has no field name. Put an empty line between the header and the text.")
		case isOneOf(f, singletonFields):
			text := f.Text()
			if before, again := once[name]; again && before == text {
				continue
			} else if again {
				return nil, fault.New(fault.Invalid, "invalid_header", "The message has more than one %s field.", canonicalName(f, singletonFields))
			}
			once[name] = text
			if f.isUnreadable() {
				continue
			}
		case isOneOf(f, mergeableFields):
			all, first := joined[name]
			if !first {
				continue
			}
			delete(joined, name)
			if all != nil {
				f.Raw = append(append(append(bytes.Clone(f.Name), ": "...), all...), "\r\n"...)
				f.Value = f.Raw[len(f.Name)+1 : min(len(f.Raw)-2, len(f.Name)+1+MaxField)]
			}
		}
		if !m.add(f) {
			return nil, fault.New(fault.Invalid, "line_too_long", "A line of the message's header is longer than 998 octets and can't be folded.")
		}
	}
	return append(m.dst, h[at:]...), nil
}

// isUnreadable reports whether a Date or Message-ID field says nothing.
func (f Field) isUnreadable() bool {
	switch text := f.Text(); {
	case f.Is("Date"):
		_, ok := ParseDate(text)
		return !ok
	case f.Is("Message-ID"):
		ids := ParseMessageIDs(text)
		return len(ids) != 1 || ids[0] != text || !isASCII(text) || !isValidMessageID(text)
	}
	return false
}

// mergedValues returns, for each of mergeableFields that the header has, the field that says
// what all of them do; nil if there is one alone.
func (h Header) mergedValues() map[string][]byte {
	count, values := map[string]int{}, map[string][][]byte{}
	for f := range h.Fields() {
		if isOneOf(f, mergeableFields) {
			name := strings.ToLower(string(f.Name))
			count[name]++
			if v := trimSpace(f.Raw[bytes.IndexByte(f.Raw, ':')+1:]); len(v) > 0 {
				values[name] = append(values[name], v)
			}
		}
	}
	all := map[string][]byte{}
	for name, n := range count {
		all[name] = nil
		if n > 1 {
			between := ",\r\n "
			if name == "references" || name == "in-reply-to" {
				between = "\r\n "
			}
			all[name] = bytes.Join(values[name], []byte(between))
		}
	}
	return all
}

func isOneOf(f Field, names []string) bool { return canonicalName(f, names) != "" }

// canonicalName returns the name of a field as the list has it, "" if it is not in there.
func canonicalName(f Field, names []string) string {
	for _, name := range names {
		if f.Is(name) {
			return name
		}
	}
	return ""
}

// TextCharset returns the charset that the message's first text says it has, or "".
func (ix *Index) TextCharset() string {
	for i := range ix.Parts {
		if p := &ix.Parts[i]; p.Kind == Leaf && p.Type == "text" {
			if c := p.Param("charset"); c != "" {
				return c
			}
		}
	}
	return ""
}

// asciiOnly returns the header in ASCII: its text in encoded words, and ? for what has
// no place in them.
func (h Header) toASCII() Header {
	m := fieldNormalizer{}
	at := 0
	for f := range h.Fields() {
		at += len(f.Raw)
		m.add(f) // what can't be folded stays long
	}
	return Header(replaceNonASCII(append(m.dst, h[at:]...)))
}
