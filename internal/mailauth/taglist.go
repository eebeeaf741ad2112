// SPDX-License-Identifier: Apache-2.0

package mailauth

import (
	"fmt"
	"strings"
)

// The limits of a published record: more than any real one has.
const (
	maxRecordSize = 16 << 10 // bytes
	maxTags       = 64
	maxTXTRecords = 64 // TXT records looked at under one name
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

// parseTags reads a tag list leniently: blanks anywhere around names and
// values, empty parts, a semicolon at the end. What it cannot read it says.
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

// withLowerNames returns the tags with their names in lower case, for records in which case
// says nothing; two that differ in case alone are one twice.
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

// printable makes a piece of a published record fit for a sentence.
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

// hasPrefixFold reports whether s begins with prefix, whatever the case.
func hasPrefixFold(s, prefix string) bool {
	return len(s) >= len(prefix) && strings.EqualFold(s[:len(prefix)], prefix)
}

// limitRecords bounds how many TXT records of a name are looked at.
func limitRecords(txts []string) []string { return txts[:min(len(txts), maxTXTRecords)] }
