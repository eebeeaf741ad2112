// SPDX-License-Identifier: Apache-2.0

package folder

import (
	"testing"

	"github.com/mailstead/mailstead/internal/fault"
)

// One COPY or MOVE takes so many messages; RENAME of INBOX takes all.
func TestCarry(t *testing.T) {
	each(t, func(h *house) {
		h.Carry = 2
		h.fill(Inbox, 3)
		v := h.view(Inbox)
		for name, transfer := range map[string]func(uids []uint32) (Copied, error){
			"COPY": func(uids []uint32) (Copied, error) { return v.CopyAll(h.ctx(), uids, "Archive") },
			"MOVE": func(uids []uint32) (Copied, error) { return v.MoveAll(h.ctx(), uids, "Archive") },
		} {
			if _, err := transfer(numbers(1, 2, 3)); !fault.Is(err, fault.Limited) {
				t.Errorf("%s of three: %v", name, err)
			}
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
