// SPDX-License-Identifier: Apache-2.0

package snapshot

// Flags are a message's system flags (RFC 3501 §2.3.2).
type Flags uint8

// The system flags. Recent belongs to a session and is never stored.
const (
	Seen Flags = 1 << iota
	Answered
	Flagged
	Deleted
	Draft
	Recent
)
