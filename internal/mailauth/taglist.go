// SPDX-License-Identifier: Apache-2.0

package mailauth

import (
	"fmt"
	"strings"
)

// Limits of a published record, higher than those of any real one.
const (
	maxRecordSize = 16 << 10 // bytes
	maxTags       = 64
	maxTXTRecords = 64 // TXT records considered per name
)

// tags are the name=value pairs of a record (RFC 6376 section 3.2), in order.
type tags []tag

type tag struct{ name, value string }

// get returns a tag's value.
func (t tags) get(name string) (string, bool) {
	for _, one := range t {
		if one.name == name {
			return one.value, true
		}
	}
	return "", false
}

// parseTags parses a tag list leniently: it allows blanks around names and values, empty parts, and
// a final semicolon. The string is the problem with the list, or "".
func parseTags(s string) (tags, string) {
	if len(s) > maxRecordSize {
		return nil, "The record is too long."
	}
	list := make(tags, 0, 12) // as many as a signature has
	for part := range strings.SplitSeq(s, ";") {
		part = strings.TrimSpace(part)
		if part == "" {
			continue
		}
		name, value, ok := strings.Cut(part, "=")
		name = strings.TrimSpace(name)
		if !ok || name == "" {
			return nil, fmt.Sprintf("The part “%s” of the record is not of the form name=value; parts are separated by semicolons.", printable(part))
		}
		if strings.ContainsAny(name, "\"'\\") {
			return nil, "The record has quotation marks or backslashes inside. Remove them: they are not part of the value."
		}
		if _, twice := list.get(name); twice {
			return nil, fmt.Sprintf("The record has %s= twice.", printable(name))
		}
		if len(list) == maxTags {
			return nil, "The record has too many parts."
		}
		list = append(list, tag{name, strings.TrimSpace(value)})
	}
	return list, ""
}

// withLowerNames returns the tags with lower-case names, for records with case-insensitive names.
// Names that differ only in case are duplicates.
func (t tags) withLowerNames() (tags, string) {
	list := make(tags, 0, len(t))
	for _, one := range t {
		name := strings.ToLower(one.name)
		if _, twice := list.get(name); twice {
			return nil, fmt.Sprintf("The record has %s= twice.", printable(name))
		}
		list = append(list, tag{name, one.value})
	}
	return list, ""
}

// printable makes a piece of a published record suitable for a sentence.
func printable(s string) string {
	s = strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || r == '\uFFFD' {
			return '?'
		}
		return r
	}, strings.ToValidUTF8(s, "\uFFFD"))
	if r := []rune(s); len(r) > 60 {
		return string(r[:57]) + "..."
	}
	return s
}

// hasPrefixFold reports whether s begins with prefix, ignoring case.
func hasPrefixFold(s, prefix string) bool {
	return len(s) >= len(prefix) && strings.EqualFold(s[:len(prefix)], prefix)
}

// limitRecords limits the number of TXT records of a name.
func limitRecords(txts []string) []string { return txts[:min(len(txts), maxTXTRecords)] }
