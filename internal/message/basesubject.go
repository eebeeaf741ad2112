// SPDX-License-Identifier: Apache-2.0

package message

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// CollationKey returns the i;unicode-casemap (RFC 5051) of a text, for comparing texts byte by
// byte.
func CollationKey(s string) string {
	ascii := true
	for i := 0; i < len(s) && ascii; i++ {
		ascii = s[i] < utf8.RuneSelf
	}
	if ascii {
		return strings.ToUpper(s)
	}
	return norm.NFKD.String(strings.Map(unicode.ToTitle, s))
}

// BaseSubject returns a subject without the additions of replies, forwards and lists (RFC 5256
// §2.1), and whether it is a reply or forward. The subject must be decoded. It takes linear time.
func BaseSubject(subject string) (base string, reply bool) {
	s := strings.Join(strings.FieldsFunc(subject, func(r rune) bool { return r == ' ' || r == '\t' || r == '\r' || r == '\n' }), " ")
	for {
		s, reply = cutTrailers(s, reply)
		s, reply = cutLeaders(s, reply)
		if !hasPrefixFoldString(s, "[fwd:") || s[len(s)-1] != ']' {
			return s, reply
		}
		s, reply = s[len("[fwd:"):len(s)-1], true
	}
}

// cutTrailers removes every subj-trailer: step 2.
func cutTrailers(s string, reply bool) (string, bool) {
	for {
		s = strings.TrimRight(s, " ")
		n := len(s) - len("(fwd)")
		if n < 0 || !hasPrefixFoldString(s[n:], "(fwd)") {
			return s, reply
		}
		s, reply = s[:n], true
	}
}

// cutLeaders removes every subj-leader and subj-blob, except a blob that is everything: steps 3 to
// 5.
func cutLeaders(s string, reply bool) (string, bool) {
	for {
		s = strings.TrimLeft(s, " ")
		last, rest := s, s
		for {
			after, ok := cutBlob(rest)
			if !ok {
				break
			}
			last, rest = rest, after
		}
		after, ok := cutReplyMark(rest)
		switch {
		case ok:
			s, reply = after, true
		case rest == "":
			return last, reply
		default:
			return rest, reply
		}
	}
}

// cutBlob removes a subj-blob, such as [list], from the start of s.
func cutBlob(s string) (rest string, ok bool) {
	if s == "" || s[0] != '[' {
		return s, false
	}
	end := strings.IndexAny(s[1:], "[]") + 1
	if end == 0 || s[end] != ']' {
		return s, false
	}
	return strings.TrimLeft(s[end+1:], " "), true
}

// cutReplyMark removes a subj-refwd, such as Re[2]:, from the start of s.
func cutReplyMark(s string) (rest string, ok bool) {
	switch {
	case hasPrefixFoldString(s, "re"), hasPrefixFoldString(s, "fw"):
		rest = s[2:]
		if hasPrefixFoldString(s, "fwd") {
			rest = s[3:]
		}
	default:
		return s, false
	}
	rest, _ = cutBlob(strings.TrimLeft(rest, " "))
	return strings.CutPrefix(rest, ":")
}

// hasPrefixFoldString reports whether s begins with the ASCII prefix, ignoring case.
func hasPrefixFoldString(s, prefix string) bool {
	return len(s) >= len(prefix) && strings.EqualFold(s[:len(prefix)], prefix)
}
