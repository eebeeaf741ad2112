// SPDX-License-Identifier: Apache-2.0

// Package folder is the mail store behind IMAP: the folders of a mailbox and
// the messages in them, with their UIDs, flags and mod-sequences.
//
// Everything that changes a folder first takes the folder's row, so the UIDs
// and mod-sequences that are committed never have a gap that is filled later.
// Of each open folder a node keeps one compact View of all its messages, which
// its sessions share; the row, the change log and the new UIDs bring it up to
// date. Each session keeps, as an older version of the same, what it has told
// its client, so that sequence numbers never touch SQL.
package folder

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/mailstead/mailstead/internal/blob"
	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/event"
	"github.com/mailstead/mailstead/internal/signal"
)

// Inbox is the name of the folder that every mailbox has, whatever its case
// (RFC 3501 §5.1).
const Inbox = "INBOX"

// Separator stands between the levels of a name.
const Separator = '/'

// Special uses (RFC 6154) that a mailbox has a folder for from the start.
const (
	Sent    = `\Sent`
	Drafts  = `\Drafts`
	Junk    = `\Junk`
	Trash   = `\Trash`
	Archive = `\Archive`
)

// Options are what a Store works with.
type Options struct {
	DB     *db.DB
	Blobs  *blob.Store
	Events *event.Log
	Hub    *signal.Hub // woken with signal.Folder of what changed
	Now    func() time.Time
	Log    *slog.Logger

	// Grace is how long the bytes of a message stay after it left its last
	// folder, for those who are reading it; 0 is an hour.
	Grace time.Duration
	// Poll is how often an open folder is looked at without having been woken,
	// since a signal of another node may get lost; 0 is 5 s. Negative: always.
	Poll time.Duration
	// Keep is how many bytes the views of folders that no session has open may
	// take together, at 3 to 8 for a message; 0 is 12 MB.
	Keep int
	// Carry is how many messages one COPY may take, all in one commit, for which
	// on SQLite all who write wait; 0 is 250,000.
	Carry int
	// Part is how many messages other commands change in one commit, so that
	// others write in between; 0 is 5,000.
	Part int
	// Look is how many messages one page of a list looks at, at most; 0 is 5,000.
	Look int
	// MaxMessages is how many messages a folder may hold; 0 is DefaultMaxMessages.
	// Only mail that was accepted before the folder was full may exceed it.
	MaxMessages int
	// MaxFolders is how many folders a mailbox may have; 0 is DefaultMaxFolders.
	MaxFolders int
	// Narrow asks the index which of some messages of a mailbox, in the order
	// of their ids, may have which of the texts. It may leave messages out, and
	// tell of others, but must never say of one that it lacks what it has.
	// Without it, or if it returns nil, Search scans.
	Narrow func(ctx context.Context, mailbox db.ID, among []db.ID, sought []Sought) (*Narrowed, error)
	// Find asks the index which messages of a mailbox may meet a clause, for a
	// search in one of its folders or in all, and which it does not know. It
	// returns nil if it can't tell, or has too many. Without it Search and the lists
	// of messages look at all of them.
	Find func(ctx context.Context, mailbox db.ID, s Seek) (*Found, error)
}

// Limits where Options name no others.
const (
	DefaultMaxMessages = 1_000_000
	DefaultMaxFolders  = 10_000
)

// Store keeps the folders of all mailboxes. It is safe for use by many
// goroutines.
type Store struct {
	Options

	pace signal.Pace // of filing, before what is done with messages later
	mu   sync.Mutex
	open map[db.ID]*shared
	idle []*shared // no session has them open; the longest idle first
}

// New returns the store of a database.
func New(o Options) *Store {
	if o.Log == nil {
		o.Log = slog.Default()
	}
	if o.Grace == 0 {
		o.Grace = time.Hour
	}
	if o.Poll == 0 {
		o.Poll = 5 * time.Second
	}
	if o.Keep == 0 {
		o.Keep = 12_000_000
	}
	if o.Carry == 0 {
		o.Carry = 250_000
	}
	if o.Part == 0 {
		o.Part = 5_000
	}
	if o.Look == 0 {
		o.Look = 5_000
	}
	if o.MaxMessages == 0 {
		o.MaxMessages = DefaultMaxMessages
	}
	if o.MaxFolders == 0 {
		o.MaxFolders = DefaultMaxFolders
	}
	return &Store{Options: o, open: map[db.ID]*shared{}}
}

// Folder is a folder's row.
type Folder struct {
	ID          db.ID
	Mailbox     db.ID
	Name        string // UTF-8, Separator between levels
	Special     string // its special use, such as Sent, or ""
	UIDValidity uint32
	UIDNext     uint32
	ModSeq      uint64 // HIGHESTMODSEQ (RFC 7162)
	Messages    uint32
	Unseen      uint32
	Bytes       int64

	changed    uint64 // the mod-sequence of the last change that is no arrival
	recentFrom uint32 // UIDs from here on no session has seen yet
	logFloor   uint64 // changes up to this mod-sequence are not in the log
}
