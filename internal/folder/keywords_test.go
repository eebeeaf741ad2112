// SPDX-License-Identifier: Apache-2.0

package folder

import (
	"fmt"
	"strings"
	"testing"

	"github.com/mailstead/mailstead/internal/fault"
)

// A client that gives a message other keywords again and again fills no memory
// without end.
func TestKeywordsEnd(t *testing.T) {
	table := newWordTable()
	var err error
	bytes := 0
	for n := 0; err == nil && bytes <= 2*maxWords; n++ {
		words := make([]string, MaxKeywords)
		for i := range words {
			words[i] = fmt.Sprintf("%0*d-%d", MaxKeywordBytes-8, n, i)
		}
		bytes += len(strings.Join(words, " "))
		_, err = table.change(0, Replace, words)
	}
	if !fault.Is(err, fault.Limited) {
		t.Fatalf("%d bytes of keywords, %v", bytes, err)
	}
	// What the table knows stays possible, and what others have set is shown.
	if id, err := table.change(1, Remove, table.set(1)); err != nil || id != 0 {
		t.Errorf("taking keywords away: %d, %v", id, err)
	}
	if id, err := table.change(0, Replace, table.set(2)); err != nil || id != 2 {
		t.Errorf("keywords as before: %d, %v", id, err)
	}
	if id := table.id("other"); table.text(id) != "other" {
		t.Errorf("%d is %q", id, table.text(id))
	}
	// A view that nobody has open is dropped before it takes much room.
	each(t, func(h *house) {
		h.fill(Inbox, 1)
		v := h.view(Inbox)
		before := v.shared.weight()
		v.shared.words.id(strings.Repeat("w", 10_000))
		if grown := v.shared.weight() - before; grown < 10_000 {
			t.Errorf("the view weighs %d bytes more", grown)
		}
	})
}
