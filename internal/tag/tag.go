// SPDX-License-Identifier: Apache-2.0

// Package tag has the rules for tags: words by which an account groups its sent messages in lists,
// events and statistics.
package tag

import (
	"fmt"
	"slices"
	"strings"

	"github.com/mailstead/mailstead/internal/fault"
)

// Limits of the tags of a message.
const (
	MaxTags   = 10
	MaxLength = 64 // characters of a tag
)

// Rule says what a valid tag is.
var Rule = fmt.Sprintf("A tag has 1 to %d letters (a to z, A to Z), digits, dots, colons, hyphens and underscores.", MaxLength)

// Valid reports whether t is a tag. Case matters.
func Valid(t string) bool {
	return t != "" && len(t) <= MaxLength && !strings.ContainsFunc(t, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && !strings.ContainsRune("_-.:", r)
	})
}

// CheckFilter returns a fault unless a list can be searched for messages with one of these tags, at
// most MaxTags.
func CheckFilter(tags []string) *fault.Error {
	if len(tags) > MaxTags {
		return fault.New(fault.Invalid, "too_many_tags", "Give %d tags at most.", MaxTags)
	}
	for _, t := range tags {
		if !Valid(t) {
			return fault.New(fault.Invalid, "invalid_tag", "%s", Rule)
		}
	}
	return nil
}

// Join returns valid tags as they are stored: separated by spaces.
func Join(tags []string) string { return strings.Join(tags, " ") }

// Split returns the tags that Join has joined; nil for none.
func Split(stored string) []string {
	if stored == "" {
		return nil
	}
	return strings.Split(stored, " ")
}

// ContainsAny reports whether stored tags include one of the given ones.
func ContainsAny(stored string, tags []string) bool {
	for t := range strings.SplitSeq(stored, " ") {
		if slices.Contains(tags, t) {
			return true
		}
	}
	return false
}
