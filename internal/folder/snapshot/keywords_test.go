// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/mailstead/mailstead/internal/fault"
)

// A client that changes a message's keywords again and again can't fill the memory.
func TestKeywordsEnd(t *testing.T) {
	table := NewKeywordTable()
	var err error
	bytes := 0
	for n := 0; err == nil && bytes <= 2*maxNewKeywordBytes; n++ {
		words := make([]string, MaxKeywords)
		for i := range words {
			words[i] = fmt.Sprintf("%0*d-%d", maxKeywordBytes-8, n, i)
		}
		bytes += len(strings.Join(words, " "))
		_, err = table.AddToSet(0, words)
	}
	if !fault.Is(err, fault.RateLimited) {
		t.Fatalf("%d bytes of keywords, %v", bytes, err)
	}
	// Known sets stay possible, and sets by others are shown.
	if id, err := table.RemoveFromSet(1, table.Keywords(1)); err != nil || id != 0 {
		t.Errorf("taking keywords away: %d, %v", id, err)
	}
	if id, err := table.AddToSet(0, table.Keywords(2)); err != nil || id != 2 {
		t.Errorf("keywords as before: %d, %v", id, err)
	}
	if id := table.ID("other"); table.FormatSet(id) != "other" {
		t.Errorf("%d is %q", id, table.FormatSet(id))
	}
}

// Even with short keywords, a table stays within its memory limit.
func TestKeywordsShort(t *testing.T) {
	heap := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before, table := heap(), NewKeywordTable()
	const mails = "abcdefghijklmnopqrstuvwxyz0123456789"
	for n := 0; ; n++ {
		set := make([]byte, 0, 16) // eight words of one letter
		for at := n; len(set) < 16; at /= len(mails) {
			set = append(set, mails[at%len(mails)], ' ')
		}
		if table.ID(string(set[:15])) == OverflowKeywords {
			break
		}
	}
	if grown := heap() - before; grown > 2*maxKeywordTableBytes {
		t.Errorf("%d sets take %d bytes", len(table.sets), grown)
	}
}
