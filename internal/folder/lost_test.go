// SPDX-License-Identifier: Apache-2.0

package folder

import (
	"strings"
	"testing"

	"github.com/mailstead/mailstead/internal/blob"
	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/db/dbtest"
	"github.com/mailstead/mailstead/internal/fault"
)

var (
	loseBytes   = db.SQL(`DELETE FROM blob`)
	loseMessage = db.SQL(`DELETE FROM message WHERE id = $1`)
)

// A message whose bytes are lost is not reported as expunged, and the log names it. An expunged one
// is.
func TestOpenLost(t *testing.T) {
	each(t, func(h *fixture) {
		id := h.deliver("one").Message
		dbtest.Exec(h, h.db, loseBytes.With())
		_, err := h.OpenMessage(h.ctx(), id)
		_, _, parts := h.OpenParts(h.ctx(), id)
		for _, err := range []error{err, parts} {
			if !blob.IsLost(err) || fault.Is(err, fault.NotFound) || !strings.Contains(err.Error(), id.String()) {
				h.Errorf("lost: %v", err)
			}
		}
		dbtest.Exec(h, h.db, loseMessage.With(id))
		if _, err := h.OpenMessage(h.ctx(), id); !fault.Is(err, fault.NotFound) {
			h.Errorf("expunged: %v", err)
		}
	})
}
