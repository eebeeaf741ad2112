// SPDX-License-Identifier: Apache-2.0

package message

import (
	"bytes"
	"strings"

	"github.com/mailstead/mailstead/internal/fault"
)

// Fields that a message may have once (RFC 5322 §3.6, RFC 2045 §3), except From and Sender, which
// Authors checks.
var (
	singletonFields = []string{"Date", "Message-ID", "Subject", "MIME-Version", "Content-Type", "Content-Transfer-Encoding", "Content-Disposition", "Content-ID"}
	mergeableFields = []string{"To", "Cc", "Reply-To", "In-Reply-To", "References"}
)

// NormalizeHeader returns the header of a message from its author in a form that other hosts
// accept: 7-bit except for addresses, lines of at most 998 octets, and no repeated fields that may
// occur once. It removes an invalid Date or Message-ID, for the caller to add a new one. charset is
// that of the message's text, for bytes that are not UTF-8. A header without a clear meaning is a
// fault.Invalid.
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
			text := f.Unfolded()
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

// isUnreadable reports whether a Date or Message-ID field is invalid.
func (f Field) isUnreadable() bool {
	switch text := f.Unfolded(); {
	case f.Is("Date"):
		_, ok := ParseDate(text)
		return !ok
	case f.Is("Message-ID"):
		ids := ParseMessageIDs(text)
		return len(ids) != 1 || ids[0] != text || !isASCII(text) || !isValidMessageID(text)
	}
	return false
}

// mergedValues returns, for each repeated field of mergeableFields, one field with all the values;
// nil if the field is not repeated.
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

// canonicalName returns the spelling of a field's name in the list, or "".
func canonicalName(f Field, names []string) string {
	for _, name := range names {
		if f.Is(name) {
			return name
		}
	}
	return ""
}

// TextCharset returns the declared charset of the message's first text, or "".
func (ix *Structure) TextCharset() string {
	for i := range ix.Parts {
		if p := &ix.Parts[i]; p.Kind == Leaf && p.Type == "text" {
			if c := p.Param("charset"); c != "" {
				return c
			}
		}
	}
	return ""
}

// toASCII returns the header in ASCII: text as encoded words, and "?" where these aren't allowed.
func (h Header) toASCII() Header {
	m := fieldNormalizer{}
	at := 0
	for f := range h.Fields() {
		at += len(f.Raw)
		m.add(f) // stays long if it can't be folded
	}
	return Header(replaceNonASCII(append(m.dst, h[at:]...)))
}
