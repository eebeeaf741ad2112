// SPDX-License-Identifier: Apache-2.0

package folder

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/mailstead/mailstead/internal/blob"
	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/mailbox"
)

// Upload is a message that a client adds to a folder.
type Upload struct {
	Blob *blob.Blob // gets its row here; the caller discards it if Append fails
	Metadata
	Flags    Flags
	Keywords []string
	Date     time.Time // internal date; zero for now
}

// reserveUIDsByNameQuery reserves UIDs in the folder with a name, unless the folder would become
// too full.
var reserveUIDsByNameQuery = db.SQL(`UPDATE folder SET uid_next = uid_next + $3, modseq = modseq + 1,
		messages = messages + $3, unseen = unseen + $4, bytes = bytes + $5,
		surcharge = surcharge + $6, surcharge_mark = surcharge_mark + $3
	WHERE mailbox = $1 AND name = $2 AND messages + $3 <= $7 RETURNING id, uidvalidity, uid_next - $3, modseq`)

var maxInboxMessagesQuery = db.SQL(`SELECT COALESCE(MAX(messages), 0) FROM folder WHERE mailbox = $1 AND (name = 'INBOX' OR special_use = '\Junk')`)

// errAppendDeclined declines a mutation whose folder does not exist or would become too full.
var errAppendDeclined = fault.New(fault.Unavailable, "folder_busy", "The folder is being changed by others all the time. Try again.")

// appendError returns why messages could not be appended to a folder, or errAppendDeclined if they
// could be appended now.
func (s *Folders) appendError(ctx context.Context, box db.ID, name string, messages int64) error {
	f, err := s.folderByName(ctx, box, name)
	if err == nil {
		err = s.checkCapacity(f, messages)
	}
	return cmp.Or(err, error(errAppendDeclined))
}

// CodeFolderFull is the fault code for a folder that holds the maximum number of messages.
const CodeFolderFull = "folder_full"

// checkCapacity returns a fault if the messages would exceed the folder's limit.
func (s *Folders) checkCapacity(f Folder, messages int64) error {
	if int64(f.Messages)+messages <= int64(s.MaxMessages) {
		return nil
	}
	return fault.New(fault.RateLimited, CodeFolderFull, "A folder can hold at most %d messages. Move some to another folder, or delete them.", s.MaxMessages)
}

// RemainingMessages returns how many messages a mailbox can still receive before its INBOX or Junk
// folder is full. Messages accepted before that are filed nevertheless.
func (s *Folders) RemainingMessages(ctx context.Context, box db.ID) (int64, error) {
	var most int64
	err := s.DB.One(ctx, maxInboxMessagesQuery.With(box), &most)
	return int64(s.MaxMessages) - most, err
}

// Append adds messages to a folder in one commit, all of them or none, and returns their UIDs in
// order. It returns a fault.NotFound if the folder does not exist, a fault.RateLimited with
// CodeFolderFull if it would hold too many messages, a fault.OverQuota if they exceed the quota,
// and a fault.Invalid for bad keywords.
func (s *Folders) Append(ctx context.Context, box db.ID, name string, messages ...Upload) (uidvalidity uint32, uids []uint32, err error) {
	return s.Import(ctx, box, name, nil, messages...)
}

// Import is Append with the caller's statements in the same commit. The statements that guard
// queues run first, and may decline the commit with their own error. guard may be nil. It runs
// again when the commit is retried.
func (s *Folders) Import(ctx context.Context, box db.ID, name string, guard func(b *db.Batch), messages ...Upload) (uidvalidity uint32, uids []uint32, err error) {
	defer s.load.Begin(s.Now)()
	if len(messages) == 0 {
		to, err := s.folderByName(ctx, box, name)
		return to.UIDValidity, nil, err
	}
	if name, err = cleanName(name); err != nil {
		return 0, nil, noFolderError()
	}
	filings := make([]*pendingMessage, len(messages))
	var sum totals
	for i, u := range messages {
		f, err := s.newPendingMessage(box, u)
		if err != nil {
			return 0, nil, err
		}
		filings[i] = f
		sum.messages++
		sum.unseen += f.unseenCount()
		sum.bytes += f.size()
		sum.surcharge += f.usage().Overhead
	}
	var first MessageRef
	tell := false
	job := &db.Mutation{
		Guard: func(b *db.Batch) {
			if guard != nil {
				guard(b)
			}
			b.Queue(mailbox.LockUsage(box))
			b.Queue(reserveUIDsByNameQuery.With(box, name, sum.messages, sum.unseen, sum.bytes, sum.surcharge, s.MaxMessages)).
				One(&first.Folder, &first.UIDValidity, &first.UID, &first.ModSeq).OrFail(errAppendDeclined)
			b.Queue(mailbox.ReserveUsage(box, sum.usage())).Each(mailbox.ScanNearlyFull(&tell)).OrFail(mailbox.FullError())
		},
		Apply: func(b *db.Batch) {
			for i, f := range filings {
				f.Folder, f.UID, f.ModSeq = first.Folder, first.UID+uint32(i), first.ModSeq
				f.queueInserts(b)
			}
		},
		AfterCommit: func() {
			s.wakeFolder(first.Folder)
			s.wakeQuotaNotifier(tell)
		},
	}
	err = errAppendDeclined
	for n := 0; n < maxDeliverTries && errors.Is(err, errAppendDeclined); n++ {
		if err = s.DB.Write(ctx, box, job); errors.Is(err, errAppendDeclined) {
			err = s.appendError(ctx, box, name, sum.messages)
		}
	}
	if err != nil {
		return 0, nil, err
	}
	for _, f := range filings {
		uids = append(uids, f.UID)
	}
	return first.UIDValidity, uids, nil
}
