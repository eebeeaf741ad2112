// SPDX-License-Identifier: Apache-2.0

package tag_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/mailstead/mailstead/internal/tag"
)

func TestValid(t *testing.T) {
	for word, want := range map[string]bool{
		"welcome": true, "A/B": false, "v1.2:Team_a-b": true, "": false, "two words": false, "a,b": false, "grüße": false, "a\n": false, "\xff": false,
		strings.Repeat("x", tag.MaxLength): true, strings.Repeat("x", tag.MaxLength+1): false,
	} {
		if tag.Valid(word) != want {
			t.Errorf("%q: %v", word, !want)
		}
	}
}

func TestStored(t *testing.T) {
	list := []string{"b", "a", "B"}
	stored := tag.Join(list)
	if got := tag.Split(stored); !slices.Equal(got, list) {
		t.Errorf("read %q", got)
	}
	if tag.Split("") != nil || tag.Join(nil) != "" {
		t.Error("no tags are stored as some")
	}
	if !tag.ContainsAny(stored, []string{"c", "B"}) || tag.ContainsAny(stored, []string{"c", "A"}) || tag.ContainsAny(stored, nil) || tag.ContainsAny("", []string{"a"}) {
		t.Error("wrong tags found")
	}
}
