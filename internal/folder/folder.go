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
	"github.com/mailstead/mailstead/internal/notify"
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
	Hub    *notify.Hub // woken with notify.Folder of what changed
	Now    func() time.Time
	Log    *slog.Logger

	// ExpungeGrace is how long the bytes of a message stay after it left its last
	// folder, for those who are reading it; 0 is an hour.
	ExpungeGrace time.Duration
	// PollInterval is how often an open folder is looked at without having been woken,
	// since a signal of another node may get lost; 0 is 5 s. Negative: always.
	PollInterval time.Duration
	// MaxIdleViewBytes is how many bytes the views of folders that no session has open may
	// take together, at 3 to 8 for a message; 0 is 12 MB.
	MaxIdleViewBytes int
	// MaxCopy is how many messages one COPY may take, all in one commit, for which
	// on SQLite all who write wait; 0 is 250,000.
	MaxCopy int
	// BatchSize is how many messages other commands change in one commit, so that
	// others write in between; 0 is 5,000.
	BatchSize int
	// MaxScan is how many messages one page of a list looks at, at most; 0 is 5,000.
	MaxScan int
	// MaxMessages is how many messages a folder may hold; 0 is DefaultMaxMessages.
	// Only mail that was accepted before the folder was full may exceed it.
	MaxMessages int
	// MaxFolders is how many folders a mailbox may have; 0 is DefaultMaxFolders.
	MaxFolders int
	// Prefilter asks the index which of some messages of a mailbox, in the order
	// of their ids, may have which of the texts. It may leave messages out, and
	// tell of others, but must never say of one that it lacks what it has.
	// Without it, or if it returns nil, Search scans.
	Prefilter func(ctx context.Context, mailbox db.ID, among []db.ID, sought []IndexTerm) (*PrefilterResult, error)
	// QueryIndex asks the index which messages of a mailbox may meet a clause, for a
	// search in one of its folders or in all, and which it does not know. It
	// returns nil if it can't tell, or has too many. Without it Search and the lists
	// of messages look at all of them.
	QueryIndex func(ctx context.Context, mailbox db.ID, s IndexQuery) (*IndexResult, error)
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

	load notify.LoadGauge // of filing, before what is done with messages later
	mu   sync.Mutex
	open map[db.ID]*sharedView
	idle []*sharedView // no session has them open; the longest idle first
}

// New returns the store of a database.
func New(o Options) *Store {
	if o.Log == nil {
		o.Log = slog.Default()
	}
	if o.ExpungeGrace == 0 {
		o.ExpungeGrace = time.Hour
	}
	if o.PollInterval == 0 {
		o.PollInterval = 5 * time.Second
	}
	if o.MaxIdleViewBytes == 0 {
		o.MaxIdleViewBytes = 12_000_000
	}
	if o.MaxCopy == 0 {
		o.MaxCopy = 250_000
	}
	if o.BatchSize == 0 {
		o.BatchSize = 5_000
	}
	if o.MaxScan == 0 {
		o.MaxScan = 5_000
	}
	if o.MaxMessages == 0 {
		o.MaxMessages = DefaultMaxMessages
	}
	if o.MaxFolders == 0 {
		o.MaxFolders = DefaultMaxFolders
	}
	return &Store{Options: o, open: map[db.ID]*sharedView{}}
}

// Folder is a folder's row.
type Folder struct {
	ID          db.ID
	Mailbox     db.ID
	Name        string // UTF-8, Separator between levels
	SpecialUse  string // its special use, such as Sent, or ""
	UIDValidity uint32
	UIDNext     uint32
	ModSeq      uint64 // HIGHESTMODSEQ (RFC 7162)
	Messages    uint32
	Unseen      uint32
	Bytes       int64

	changeModSeq uint64 // the mod-sequence of the last change that is no arrival
	recentFrom   uint32 // UIDs from here on no session has seen yet
	logFloor     uint64 // changes up to this mod-sequence are not in the log
}
