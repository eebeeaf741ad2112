// SPDX-License-Identifier: Apache-2.0

package folder

import (
	"context"
	"time"

	"github.com/mailstead/mailstead/internal/db"
)

type shared struct{}

// View is what one session sees of an open folder: the messages that its
// client was told of, by sequence number. Only Sync changes that, and the
// session's own commands the flags. It is for one goroutine, but for Wait.
type View struct{}

// Open opens a folder for a session. readOnly is for EXAMINE: messages stay
// recent for others. No such folder is a fault.NotFound.
func (s *Store) Open(ctx context.Context, mailbox db.ID, name string, readOnly bool) (*View, error) {
	return nil, errNotBuilt
}

// Close ends the view.
func (v *View) Close() {}

// Folder returns the folder's row as of Open or the last Sync.
func (v *View) Folder() Folder { return Folder{} }

// Len returns how many messages the session knows: the highest sequence number.
func (v *View) Len() int { return 0 }

// Recent returns how many of them are recent to this session.
func (v *View) Recent() uint32 { return 0 }

// FirstUnseen returns the sequence number of the first unseen message, or 0.
func (v *View) FirstUnseen() uint32 { return 0 }

// Keywords returns all keywords in the folder, sorted.
func (v *View) Keywords() []string { return nil }

// UID returns the UID of a sequence number, or 0 if there is no such message.
func (v *View) UID(seq uint32) uint32 { return 0 }

// Seq returns the sequence number of a UID, or 0 if there is no such message.
func (v *View) Seq(uid uint32) uint32 { return 0 }

// Star in a Range stands for the last message: "*".
const Star = 0

// Range is Lo to Hi, both included, in either order.
type Range struct{ Lo, Hi uint32 }

// Resolve returns the UIDs of the messages in a set of sequence numbers or
// UIDs, rising, each once. What does not exist is left out.
func (v *View) Resolve(set []Range, byUID bool) []uint32 { return nil }

// Changes are what a client has to be told, in this order.
type Changes struct {
	// Expunged are sequence numbers, each as of the time when those before
	// it are gone.
	Expunged []uint32
	Vanished []uint32 // the same messages as rising UIDs
	Arrived  bool     // Exists has grown since
	Exists   uint32
	Recent   uint32
	Flags    []FlagChange // with the sequence numbers after Expunged
}

// Sync brings the session up to date with what others did and returns what to
// tell its client. Messages vanish only if expunge is true (RFC 3501 §7.4.1);
// until then they keep their sequence numbers. A folder that was deleted is a
// fault.NotFound.
func (v *View) Sync(ctx context.Context, expunge bool) (Changes, error) {
	return Changes{}, errNotBuilt
}

// Wait returns a channel that receives when there may be something to Sync.
func (v *View) Wait() <-chan struct{} { return nil }

// Want says what Fetch has to read; UID, sequence number, flags, keywords,
// mod-sequence and size come always and cost no SQL.
type Want uint8

// What rows may hold beside.
const (
	WantDates     Want = 1 << iota // Date and SavedAt
	WantEnvelope                   // Envelope
	WantStructure                  // Structure
	WantBlob                       // Blob
)

// Row is a message as Fetch gives it.
type Row struct {
	FlagChange           // Seq, UID, Flags, Keywords, ModSeq as the session knows them
	Size       uint32    // bytes
	Message    db.ID     // with any Want
	Date       time.Time // internal date
	SavedAt    time.Time // when it came into this folder (RFC 8514)
	Envelope   []byte
	Structure  []byte
	Blob       db.ID // for blob.Store.Load
}

// Fetch calls f with each of the messages, which must be in rising order of
// UID. No cursor and no lock is held while f runs, so that it may write to a
// slow client. A message that another session expunged meanwhile is left out,
// if its row was needed; ones that the view does not have always are.
func (v *View) Fetch(ctx context.Context, uids []uint32, want Want, f func(*Row) error) error {
	return errNotBuilt
}

// StoreFlags are what View.Store does.
type StoreFlags struct {
	Op       Op
	Flags    Flags
	Keywords []string
	// UnchangedSince, if Conditional, leaves alone every message whose
	// mod-sequence is higher (RFC 7162 §3.1.3).
	Conditional    bool
	UnchangedSince uint64
}

// Store changes the flags of messages in one commit. changed tells the flags of
// all messages that it was asked for and that are still there, also of those
// that had them before; a Sync does not tell of them again. failed are the UIDs
// that UnchangedSince excluded. Bad keywords are a fault.Invalid.
func (v *View) Store(ctx context.Context, uids []uint32, change StoreFlags) (changed []FlagChange, failed []uint32, err error) {
	return nil, nil, errNotBuilt
}

// Copied tells the UIDs of copied messages: Dst[i] is the copy of Src[i].
type Copied struct {
	UIDValidity uint32 // of the destination
	Src, Dst    []uint32
}

// Copy copies messages to another folder of the mailbox, all in one commit. No
// such folder is a fault.NotFound, no room a fault.OverQuota. Messages that
// were expunged meanwhile are left out.
func (v *View) Copy(ctx context.Context, uids []uint32, to string) (Copied, error) {
	return Copied{}, errNotBuilt
}

// Move moves messages to another folder in one commit (RFC 6851); Sync tells
// that they are gone from here.
func (v *View) Move(ctx context.Context, uids []uint32, to string) (Copied, error) {
	return Copied{}, errNotBuilt
}

// Expunge removes the messages with the Deleted flag, if only is not nil only
// those among these UIDs, and returns the UIDs of what it removed; Sync tells
// that they are gone.
func (v *View) Expunge(ctx context.Context, only []uint32) ([]uint32, error) {
	return nil, errNotBuilt
}

// ChangedSince returns the UIDs, of those given, whose mod-sequence is higher
// than modseq (RFC 7162 §3.1.4.1).
func (v *View) ChangedSince(uids []uint32, modseq uint64) []uint32 { return nil }

// VanishedSince returns the UIDs of known that are not in the folder any more,
// as far as they may have vanished after modseq (RFC 7162 §3.2.10). known nil
// means all.
func (v *View) VanishedSince(ctx context.Context, modseq uint64, known []Range) ([]Range, error) {
	return nil, errNotBuilt
}
