// SPDX-License-Identifier: Apache-2.0

package mailfile

import (
	"slices"
	"strconv"
	"strings"
)

// isMetadataField reports whether a field, whose name is in lower case, is one that programs add to
// messages of an mbox for their own use. It is not part of the message.
func isMetadataField(name string) bool {
	return slices.Contains([]string{"status", "x-status", "x-keywords", "x-uid", "x-imap", "x-imapbase", "content-length",
		"x-mozilla-status", "x-mozilla-status2", "x-mozilla-keys"}, name)
}

// statusFlags are the letters of Status and X-Status.
var statusFlags = map[rune]Flags{'R': Seen, 'A': Answered, 'F': Flagged, 'D': Deleted, 'T': Draft}

// applyStatusField applies a metadata field to a message. name is in lower case.
func (m *Message) applyStatusField(name, value string) {
	value = strings.TrimSpace(value)
	switch name {
	case "status", "x-status":
		for _, c := range value {
			m.Flags |= statusFlags[c]
		}
	case "x-keywords", "x-mozilla-keys":
		m.Keywords = append(m.Keywords, strings.FieldsFunc(value, func(r rune) bool { return r == ' ' || r == ',' || r == '\t' })...)
		m.Keywords = m.Keywords[:min(len(m.Keywords), maxMessageKeywords/2)]
	case "x-mozilla-status":
		bits, err := strconv.ParseUint(value, 16, 32)
		if err != nil {
			return
		}
		for _, b := range []struct {
			bit  uint64
			flag Flags
		}{{0x1, Seen}, {0x2, Answered}, {0x4, Flagged}} {
			if bits&b.bit != 0 {
				m.Flags |= b.flag
			}
		}
		if bits&0x1000 != 0 {
			m.Keywords = append(m.Keywords, "$Forwarded")
		}
		m.Expunged = bits&0x8 != 0
	}
}
