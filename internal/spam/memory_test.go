// SPDX-License-Identifier: Apache-2.0

package spam

import (
	"bufio"
	"io"
	"testing"

	"github.com/mailstead/mailstead/internal/heaptest"
	"github.com/mailstead/mailstead/internal/needtest"
)

// Tokenizing a text needs little memory, for any text.
func TestMemoryOfTokens(t *testing.T) {
	needtest.Full(t, "memory")
	words := func(r io.Reader) any {
		all := &tokenizer{seen: map[uint64]struct{}{}}
		if err := all.addWords("", bufio.NewReader(r)); err != nil {
			t.Error(err)
		}
		return all
	}
	heaptest.Check(t, words,
		heaptest.Input{Unit: "a"},
		heaptest.Input{Unit: "\u0e01"})
}
