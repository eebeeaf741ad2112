// SPDX-License-Identifier: Apache-2.0

// Package folder is the mail store behind IMAP: the folders of a mailbox and the messages in them,
// with their UIDs, flags and mod-sequences.
//
// Every change to a folder first locks the folder's row. So the committed UIDs and mod-sequences
// never have a gap that is filled later. For each open folder a node keeps one compact shared view
// of all its messages. The row, the change log and the new UIDs bring it up to date. Each session
// keeps an older version of that view: what its client knows. So sequence numbers need no SQL.
package folder

import (
	"log/slog"
	"sync"
	"time"

	"github.com/mailstead/mailstead/internal/blob"
	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/event"
	"github.com/mailstead/mailstead/internal/notify"
)

// Inbox is the name of the folder that every mailbox has, in any case (RFC 3501 §5.1).
const Inbox = "INBOX"

// Separator separates the levels of a name.
const Separator = '/'

// Special uses (RFC 6154) for which every mailbox has a folder from the start.
const (
	Sent    = `\Sent`
	Drafts  = `\Drafts`
	Junk    = `\Junk`
	Trash   = `\Trash`
	Archive = `\Archive`
)

// Options are the dependencies and limits of Folders.
type Options struct {
	DB     *db.DB
	Blobs  *blob.Store
	Events *event.Log
	Hub    *notify.Hub // woken with notify.Folder for each change
	Now    func() time.Time
	Log    *slog.Logger

	// ExpungeGrace is how long a message's bytes stay after it left its last folder, because
	// clients may still be reading them; 0 is an hour.
	ExpungeGrace time.Duration
	// PollInterval is how often Run looks for changes of open folders on PostgreSQL, since a signal
	// of another node may get lost; 0 is 5 s. If it is negative, every Sync reads the folder.
	PollInterval time.Duration
	// MaxIdleViewBytes is how many bytes the views of folders that no session has open may take
	// together, at 3 to 8 for a message; 0 is 12 MB.
	MaxIdleViewBytes int
	// MaxCopy is how many messages one COPY may copy, all in one commit, which blocks all writers
	// on SQLite; 0 is 250,000.
	MaxCopy int
	// BatchSize is how many messages other commands change in one commit, so that others can write
	// in between; 0 is 5,000.
	BatchSize int
	// MaxMessages is how many messages a folder may hold; 0 is DefaultMaxMessages. Only mail that
	// was accepted before the folder was full may exceed it.
	MaxMessages int
	// MaxFolders is how many folders a mailbox may have; 0 is DefaultMaxFolders.
	MaxFolders int
}

// Default limits.
const (
	DefaultMaxMessages = 1_000_000
	DefaultMaxFolders  = 10_000
)

// Folders stores the folders of all mailboxes. It is safe for concurrent use.
type Folders struct {
	Options

	load notify.LoadGauge // of filing, which has priority over later work on messages
	mu   sync.Mutex
	open map[db.ID]*sharedView
	idle []*sharedView // views that no session has open; the longest idle first
}

// New returns Folders.
func New(o Options) *Folders {
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
	if o.MaxMessages == 0 {
		o.MaxMessages = DefaultMaxMessages
	}
	if o.MaxFolders == 0 {
		o.MaxFolders = DefaultMaxFolders
	}
	return &Folders{Options: o, open: map[db.ID]*sharedView{}}
}

// Folder is a folder's row.
type Folder struct {
	ID          db.ID
	Mailbox     db.ID
	Name        string // UTF-8, Separator between levels
	SpecialUse  string // such as Sent; "" for none
	UIDValidity uint32
	UIDNext     uint32
	ModSeq      uint64 // HIGHESTMODSEQ (RFC 7162)
	Messages    uint32
	Unseen      uint32
	Bytes       int64

	changeModSeq uint64 // the mod-sequence of the last change other than an arrival
	recentFrom   uint32 // no session has seen UIDs from here on
	logLayer     uint64 // the log lacks changes up to this mod-sequence
}
