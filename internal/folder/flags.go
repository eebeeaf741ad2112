// SPDX-License-Identifier: Apache-2.0

package folder

import "github.com/mailstead/mailstead/internal/folder/snapshot"

// Flags are a message's system flags.
type Flags = snapshot.Flags

// The system flags. Recent belongs to a session and is never stored.
const (
	Seen     = snapshot.Seen
	Answered = snapshot.Answered
	Flagged  = snapshot.Flagged
	Deleted  = snapshot.Deleted
	Draft    = snapshot.Draft
	Recent   = snapshot.Recent

	// AllFlags are the flags that a client may change.
	AllFlags = Seen | Answered | Flagged | Deleted | Draft
)

// MaxKeywords is how many keywords one message may have.
const MaxKeywords = snapshot.MaxKeywords

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
