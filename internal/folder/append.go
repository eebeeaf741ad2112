// SPDX-License-Identifier: Apache-2.0

package folder

import (
	"context"
	"time"

	"github.com/mailstead/mailstead/internal/blob"
	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/mailbox"
)

// Upload is a message that a client puts into a folder.
type Upload struct {
	Blob *blob.Blob // gets its row here; the caller discards it if Append fails
	Description
	Flags    Flags
	Keywords []string
	Date     time.Time // internal date; zero for now
}

// addNamed takes UIDs in the folder of a name.
var addNamed = db.SQL(`UPDATE folder SET uid_next = uid_next + $3, modseq = modseq + 1,
		messages = messages + $3, unseen = unseen + $4, bytes = bytes + $5
	WHERE mailbox = $1 AND name = $2 RETURNING id, uidvalidity, uid_next - $3, modseq`)

// Append puts messages into a folder in one commit, all of them or none, and
// returns their UIDs in order. No such folder is a fault.NotFound, no room a
// fault.OverQuota, bad keywords a fault.Invalid.
func (s *Store) Append(ctx context.Context, box db.ID, name string, messages ...Upload) (uidvalidity uint32, uids []uint32, err error) {
	return s.Import(ctx, box, name, nil, messages...)
}

// Import is Append with statements of the caller's in the same commit: those
// that guard queues run first, and may decline it with an error of their own.
// guard may be nil, and is called again when the commit is repeated.
func (s *Store) Import(ctx context.Context, box db.ID, name string, guard func(b *db.Batch), messages ...Upload) (uidvalidity uint32, uids []uint32, err error) {
	defer s.pace.Begin(s.Now)()
	if len(messages) == 0 {
		to, err := s.byName(ctx, box, name)
		return to.UIDValidity, nil, err
	}
	if name, err = cleanName(name); err != nil {
		return 0, nil, noFolder()
	}
	filings := make([]*filing, len(messages))
	var sum totals
	for i, u := range messages {
		f, err := s.newFiling(box, u)
		if err != nil {
			return 0, nil, err
		}
		filings[i] = f
		sum.messages++
		sum.unseen += f.unseen()
		sum.bytes += f.size()
	}
	var first Filed
	tell := false
	err = s.DB.Write(ctx, box, &db.Job{
		Guard: func(b *db.Batch) {
			if guard != nil {
				guard(b)
			}
			b.Queue(mailbox.Hold(box))
			b.Queue(addNamed.With(box, name, sum.messages, sum.unseen, sum.bytes)).
				One(&first.Folder, &first.UIDValidity, &first.UID, &first.ModSeq).Else(noFolder())
			b.Queue(mailbox.Claim(box, sum.bytes, sum.messages)).Each(mailbox.ToTell(&tell)).Else(mailbox.Full())
		},
		Apply: func(b *db.Batch) {
			for i, f := range filings {
				f.Folder, f.UID, f.ModSeq = first.Folder, first.UID+uint32(i), first.ModSeq
				f.insert(b)
			}
		},
		AfterCommit: func() {
			s.wakeFolder(first.Folder)
			s.wakeRoom(tell)
		},
	})
	if err != nil {
		return 0, nil, err
	}
	for _, f := range filings {
		uids = append(uids, f.UID)
	}
	return first.UIDValidity, uids, nil
}
