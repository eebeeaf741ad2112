// SPDX-License-Identifier: Apache-2.0

package fulltext

import (
	"context"
	"testing"
	"time"

	"github.com/mailstead/mailstead/internal/folder"
	"github.com/mailstead/mailstead/internal/folder/search"
)

// TestRun checks that Run fills the index, and repairs it when a search found damage.
func TestRun(t *testing.T) {
	each(t, func(h *fixture) {
		looked := make(chan struct{}, 1)
		h.index.Now = func() time.Time {
			select {
			case looked <- struct{}{}:
			default:
			}
			return time.Now().Add(time.Hour)
		}
		ctx, cancel := context.WithCancel(h.ctx())
		ended := make(chan error, 1)
		run := func() { ended <- h.indexer.Run(ctx) }
		filled := func() {
			t.Helper()
			for known := 0; known < 40; {
				<-looked
				n, err := h.index.Prefilter(h.ctx(), h.box, h.all(h.box), []search.IndexTerm{{Kinds: []search.TextKind{1}, Text: []byte("number")}})
				if err != nil && !isDamageError(err) {
					t.Fatal(err)
				}
				if n != nil {
					known = len(n.Messages)
				}
			}
		}
		h.append(h.box, folder.Inbox, numbered(40)...)
		go run()
		filled()
		_, err := h.index.writer.ExecContext(h.ctx(), `UPDATE search_tail SET sig = X'00'`)
		h.must(err)
		if _, err := h.index.Prefilter(h.ctx(), h.box, h.all(h.box), []search.IndexTerm{{Kinds: []search.TextKind{1}, Text: []byte("number")}}); !isDamageError(err) {
			t.Error("the damage is not seen:", err)
		}
		filled()
		cancel()
		h.must(<-ended)
	})
}
