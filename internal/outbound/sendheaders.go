// SPDX-License-Identifier: Apache-2.0

package outbound

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/message"
)

// readHeaders reads custom header fields: X- fields except those of the service, and some standard
// fields that describe the kind of mail or its conversation.
func (l *validSend) readHeaders(s *SendRequest, bad *fault.FieldErrors) {
	if len(s.Headers) > maxHeaders {
		bad.Add("headers", "too_many_headers", "A message can have %d custom headers.", maxHeaders)
		return
	}
	seen, size := map[string]bool{}, 0
	for i, name := range slices.Sorted(maps.Keys(s.Headers)) {
		value := s.Headers[name]
		size += len(name) + len(value)
		lower := strings.ToLower(name)
		// The name itself may be hostile, so the fault names the index.
		field := fmt.Sprintf("headers[%d]", i)
		if isHeaderName(name) {
			field = "headers." + name
		}
		known, why := l.readStandardHeader(lower, value)
		switch {
		case known && !seen[lower] && why == "": // accepted by readStandardHeader
		case known && !seen[lower]:
			bad.Add(field, "invalid_header_value", "%s", why)
		case !known && (!strings.HasPrefix(lower, "x-") || len(name) < 3):
			bad.Add(field, "header_not_allowed", "The name of a custom header starts with X-, or is Auto-Submitted, Feedback-ID, In-Reply-To, List-Id, Precedence or References.")
		case !isHeaderName(name):
			bad.Add(field, "invalid_header_name", "The name of a header is made of letters, digits and hyphens, 76 at most.")
		case strings.HasPrefix(lower, "x-mailstead-") || strings.HasPrefix(lower, "x-service-"):
			bad.Add(field, "header_reserved", "Headers of this name are set by the service.")
		case seen[lower]:
			bad.Add(field, "duplicate_header", "This header is given twice, in different spelling.")
		case strings.ContainsAny(value, "\r\n\x00") || !utf8.ValidString(value):
			bad.Add(field, "control_character", "Line breaks and NUL are not allowed in a header.")
		default:
			l.draft.ExtraFields = append(l.draft.ExtraFields, message.ExtraField{Name: name, Value: value})
		}
		seen[lower] = true
	}
	if size > maxHeaderBytes {
		bad.Add("headers", "too_long", "Custom headers may have %d bytes together.", maxHeaderBytes)
	}
}

var (
	listIDPattern     = regexp.MustCompile(`^[ -;=?-~]{0,200}<[A-Za-z0-9_-]{1,63}(\.[A-Za-z0-9_-]{1,63}){1,10}>$`) // RFC 2919 §2
	feedbackIDPattern = regexp.MustCompile(`^[A-Za-z0-9._-]{0,40}(:[A-Za-z0-9._-]{0,40}){3}$`)
)

// maxReferences is the maximum number of Message-IDs in a given References field.
const maxReferences = 100

// readStandardHeader reads an allowed field other than X- fields. known is false for all other
// fields; why says what is wrong with the value.
func (l *validSend) readStandardHeader(lower, value string) (known bool, why string) {
	extra := func(name string, ok bool, rule string) string {
		if !ok {
			return rule
		}
		l.draft.ExtraFields = append(l.draft.ExtraFields, message.ExtraField{Name: name, Value: value})
		return ""
	}
	switch lower {
	case "list-id":
		return true, extra("List-Id", listIDPattern.MatchString(value), "List-Id is of the form Name <news.example.com> (RFC 2919).")
	case "precedence":
		return true, extra("Precedence", slices.Contains([]string{"bulk", "list", "junk"}, strings.ToLower(value)), "Precedence is bulk, list or junk.")
	case "auto-submitted":
		kinds := []string{"no", "auto-generated", "auto-replied", "auto-notified"}
		return true, extra("Auto-Submitted", slices.Contains(kinds, strings.ToLower(value)), "Auto-Submitted is no, auto-generated, auto-replied or auto-notified (RFC 3834).")
	case "feedback-id":
		l.hasFeedbackID = true
		return true, extra("Feedback-ID", feedbackIDPattern.MatchString(value), "Feedback-ID has four parts of letters, digits, dots, hyphens and underscores with colons between, each of at most 40.")
	case "in-reply-to":
		id := strings.TrimSpace(value)
		if !message.IsUsableMessageID(id) || l.draft.InReplyTo != "" && l.draft.InReplyTo != id {
			return true, "In-Reply-To is one Message-ID in angle brackets, the same as in_reply_to if that is given too."
		}
		l.draft.InReplyTo = id
		return true, ""
	case "references":
		ids := strings.Fields(value)
		if len(ids) == 0 || len(ids) > maxReferences || slices.ContainsFunc(ids, func(id string) bool { return !message.IsUsableMessageID(id) }) {
			return true, fmt.Sprintf("References are 1 to %d Message-IDs in angle brackets, with spaces between.", maxReferences)
		}
		l.references = ids
		return true, ""
	}
	return false, ""
}

// setReferences sets the draft's References from the message that it answers, or from those that
// were given.
func (l *validSend) setReferences(before ...string) {
	answers := l.draft.InReplyTo
	if l.references != nil {
		before = slices.Clone(l.references)
		if answers != "" && !slices.Contains(before, answers) {
			before = append(before, answers)
		}
	}
	l.draft.References = slices.DeleteFunc(before, func(id string) bool { return id == "" })
}

func isHeaderName(name string) bool {
	return name != "" && len(name) <= 76 && !strings.ContainsFunc(name, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && r != '-'
	})
}
