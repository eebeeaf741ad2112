// SPDX-License-Identifier: Apache-2.0

package api

import (
	"io"
	"testing"

	"github.com/mailstead/mailstead/internal/heaptest"
)

// The extractor reserves as much memory as it uses for a request's body, for any content. The
// content of attachments uses none.
func TestMemoryOfExtractor(t *testing.T) {
	const most = 1 << 19
	body := func(r io.Reader) any {
		rest, bad, err := extractAttachments(r, -1, func() io.Writer { return io.Discard }, bodyLimits{maxBytes: 2 * heaptest.Size, maxRest: most, maxValues: maxValues, maxFaults: maxFaults})
		if len(rest) > most || len(bad) > maxFaults {
			t.Errorf("%d bytes, %d faults", len(rest), len(bad))
		}
		return []any{rest, bad, err}
	}
	const attachments = `{"attachments":[`
	heaptest.Check(t, body,
		heaptest.Input{Head: "", Unit: " "},
		heaptest.Input{Head: "", Unit: "["},
		heaptest.Input{Head: `"`, Unit: "\\"},
		heaptest.Input{Head: attachments, Unit: `{"content":1},`},
		heaptest.Input{Head: attachments + `{"content":"`, Unit: "A"})
}
