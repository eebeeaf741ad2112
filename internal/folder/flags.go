// SPDX-License-Identifier: Apache-2.0

package folder

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

	// AllFlags are the flags that a client may change.
	AllFlags = Seen | Answered | Flagged | Deleted | Draft
)

// Limits of keywords.
const (
	MaxKeywords     = 64  // of one message
	MaxKeywordBytes = 100 // of one keyword
)

// FlagOp is what UpdateFlags does with the flags.
type FlagOp uint8

// The operations.
const (
	ReplaceFlags FlagOp = iota // set exactly these
	AddFlags
	RemoveFlags
)

// FlagChange is a message with its current flags.
type FlagChange struct {
	Seq      uint32
	UID      uint32
	Flags    Flags    // with Recent, if it is recent to the session
	Keywords []string // sorted; must not be changed
	ModSeq   uint64
	// ChangedByOthers reports, in the result of UpdateFlags, whether others have also changed the
	// flags since the client was told of them. The client can't infer the flags from its command
	// then.
	ChangedByOthers bool

	keywordsMissing bool // whether Keywords must still be read
}
