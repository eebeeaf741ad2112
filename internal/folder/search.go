// SPDX-License-Identifier: Apache-2.0

package folder

import (
	"context"
	"time"
)

// Test says what a Criterion tests.
type Test uint8

// The tests, with the fields of Criterion that each uses.
const (
	All         Test = iota // every message
	And                     // Of: all of them hold
	Or                      // Of: one of them holds
	InUIDs                  // UIDs
	HasFlags                // Flags: all of these, Recent too
	HasKeyword              // Text
	HasHeader               // Header, Text: a field of that name contains the text
	InBody                  // Text
	InText                  // Text: in header or body
	DateBefore              // Time: the internal date is earlier
	DateSince               // Time: it is that or later
	SentBefore              // Time: the day in the Date header is earlier
	SentSince               // Time: the day is that or later
	SavedBefore             // Time
	SavedSince              // Time
	Larger                  // Num: more bytes
	Smaller                 // Num: fewer bytes
	ModSeqFrom              // Num: the mod-sequence is that or higher
)

// Criterion is a node of a search program. Texts match whatever their case,
// anywhere in the decoded text (RFC 3501 §6.4.4).
type Criterion struct {
	Test   Test
	Not    bool
	Of     []Criterion
	UIDs   []uint32 // rising
	Flags  Flags
	Header string
	Text   string // UTF-8
	Time   time.Time
	Num    uint64
}

// Search returns the UIDs of the session's messages for which c holds, rising.
// It reads no more than it needs: rows only if the view does not decide, bytes
// only if the rows do not. It ends early with ctx.
func (v *View) Search(ctx context.Context, c Criterion) ([]uint32, error) {
	return nil, errNotBuilt
}
