// SPDX-License-Identifier: Apache-2.0

package folder

import (
	"testing"

	"github.com/mailstead/mailstead/internal/fault"
)

// The limit of one COPY does not apply to moves such as RENAME of INBOX.
func TestCarry(t *testing.T) {
	each(t, func(h *fixture) {
		h.MaxCopy = 2
		h.fill(Inbox, 3)
		v := h.view(Inbox)
		if _, err := v.CopyAll(h.ctx(), numbers(1, 2, 3), "Archive"); !fault.Is(err, fault.RateLimited) {
			t.Errorf("COPY of three: %v", err)
		}
		_, err := v.CopyAll(h.ctx(), numbers(1, 2), "Archive")
		h.must(err)
		h.must(h.Rename(h.ctx(), h.box, Inbox, "Old"))
		for name, want := range map[string]uint32{"Archive": 2, Inbox: 0, "Old": 3} {
			if got := h.status(name).Messages; got != want {
				t.Errorf("%s has %d messages, want %d", name, got, want)
			}
		}
		h.checkCounts()
	})
}
