// SPDX-License-Identifier: Apache-2.0

package message

import (
	"bytes"
	"strings"
)

// utf8BOM is the byte order mark of UTF-8. Some programs begin a message with it.
var utf8BOM = []byte("\xef\xbb\xbf")

// WithoutBOM returns the header without a byte order mark at its start.
func (h Header) WithoutBOM() Header { return bytes.TrimPrefix(h, utf8BOM) }

// SplitBody splits off the beginning of the body if there is no empty line before it: the first
// line that is not a field, and everything after it. If more fields follow that line, it is only an
// odd line of the header, and body is nil.
func (h Header) SplitBody() (header Header, body []byte) {
	at := h.bodyStart()
	if at < 0 {
		return h, nil
	}
	return h[:at:at], h[at:]
}

// bodyStart returns the start of a body without an empty line before it, or -1. A field that a mail
// reader might use is never part of the body.
func (h Header) bodyStart() int {
	at, pos, first := -1, len(h)-len(h.WithoutBOM()), true
	delimited := false // whether the line is the first part's delimiter
	for f := range h.Fields() {
		start := pos
		pos += len(f.Raw)
		switch {
		case at >= 0 && (hasPrefixFold(f.Name, "content-") && !delimited || isKnownField(f.Name)):
			return -1
		case at >= 0 || len(f.Name) > 0:
		case first && hasPrefixFold(bytes.TrimPrefix(f.Raw, []byte{'>'}), "from "): // of an mbox
		case f.Raw[0] != ' ' && f.Raw[0] != '\t':
			at, delimited = start, h[:start].isDelimiter(f.Raw)
		}
		first = false
	}
	return at
}

// isDelimiter reports whether a line is a delimiter of the multipart with this header.
func (h Header) isDelimiter(line []byte) bool {
	if len(line) < 3 || line[0] != '-' || line[1] != '-' {
		return false
	}
	f, ok := h.First("Content-Type")
	if !ok {
		return false
	}
	typ, _, params := parseContentType(f.Value)
	b := boundaryParam(params)
	return typ == "multipart" && b != "" && strings.HasPrefix(string(line[2:]), b)
}

// isKnownField reports whether a field is one that mail readers, servers or programs commonly use.
func isKnownField(name []byte) bool {
	for _, prefix := range []string{"x-", "list-", "resent-", "arc-", "dkim-", "received", "authentication-results", "auto-", "mime-"} {
		if hasPrefixFold(name, prefix) {
			return true
		}
	}
	switch strings.ToLower(string(name)) {
	case "from", "sender", "reply-to", "to", "cc", "bcc", "date", "subject", "message-id", "in-reply-to", "references", "return-path",
		"delivered-to", "envelope-to", "precedence", "importance", "priority", "sensitivity", "organization", "user-agent", "errors-to",
		"disposition-notification-to", "keywords", "comments", "thread-topic", "thread-index", "feedback-id", "autocrypt":
		return true
	}
	return false
}

func hasPrefixFold(b []byte, prefix string) bool {
	return len(b) >= len(prefix) && equalFold(b[:len(prefix)], prefix)
}

// maxRescan limits the number of times that a message's bytes are read again.
const maxRescan = 4

// endHeaderAtBody ends the current header where its body begins without an empty line, and scans
// the body's lines again. The total is limited to maxRescan times the message. It reports whether
// it did so.
func (s *Scanner) endHeaderAtBody() bool {
	place := len(s.ix.Parts) - 1
	p := &s.ix.Parts[place]
	if len(s.headerBuf) >= maxHeaderBytes(place) || s.rescanned+int64(len(s.headerBuf)) > maxRescan*s.offset {
		return false
	}
	at := Header(s.headerBuf).bodyStart()
	if at < 0 {
		return false
	}
	body := s.headerBuf[at:]
	if place > 0 {
		body = bytes.Clone(body) // the next header reuses the buffer
	}
	s.rescanned += int64(len(body))
	s.headerBuf = s.headerBuf[:at:at]
	s.offset -= int64(len(body))
	s.lines -= int64(bytes.Count(body, []byte{'\n'}))
	s.eol, s.lineBuffered = lineEndLength(s.headerBuf), false
	p.Traits &^= HeaderEightBit | HeaderNUL
	p.Traits |= headerTraits(traitsOf(s.headerBuf))
	s.endHeader()
	for len(body) > 0 {
		n := lineEnd(body)
		s.scanLine(body[:n], int64(n), traitsOf(body[:n]))
		body = body[n:]
	}
	return true
}
