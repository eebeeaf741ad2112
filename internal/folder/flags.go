// SPDX-License-Identifier: Apache-2.0

package folder

// Flags are a message's system flags (RFC 3501 §2.3.2).
type Flags uint8

// The system flags. Recent is a session's own and is never stored.
const (
	Seen Flags = 1 << iota
	Answered
	Flagged
	Deleted
	Draft
	Recent

	// AllFlags are those that a client may change.
	AllFlags = Seen | Answered | Flagged | Deleted | Draft
)

// Limits of keywords.
const (
	MaxKeywords     = 64  // of one message
	MaxKeywordBytes = 100 // of one keyword
)

// FlagOp is what Store does with flags.
type FlagOp uint8

// The operations.
const (
	ReplaceFlags FlagOp = iota // set exactly these
	AddFlags
	RemoveFlags
)

// FlagChange tells a message's flags as they are now.
type FlagChange struct {
	Seq      uint32
	UID      uint32
	Flags    Flags    // with Recent, if it is that to the session
	Keywords []string // sorted; not to be changed
	ModSeq   uint64
	// ChangedByOthers says, of what Store returns, that others have changed them too
	// since the session was told: its client can't know them from the command.
	ChangedByOthers bool

	keywordsMissing bool // Keywords are to be read
}
