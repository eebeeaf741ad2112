// SPDX-License-Identifier: Apache-2.0

package folder

import (
	"context"
	"errors"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/folder/snapshot"
	"github.com/mailstead/mailstead/internal/mailbox"
	"github.com/mailstead/mailstead/internal/notify"
)

// A message is recent to the first session that is told of it (RFC 3501 §2.3.2). A new session
// claims the existing recent messages in the database. It claims messages that arrive later only in
// the node's memory, and saves that when it ends: no commit per session and message. If the node
// dies first, the next session sees the messages as recent once more, which the RFC prefers in case
// of doubt.

var (
	claimRecentQuery = db.SQL(`UPDATE folder SET recent_uid = $3 WHERE id = $1 AND recent_uid = $2`)
	raiseRecentQuery = db.SQL(`UPDATE folder SET recent_uid = $2 WHERE id = $1 AND recent_uid < $2`)
)

var errRecentClaimed = errors.New("another session claimed the recent messages")

// claimRecent initializes the session with the folder's messages, and claims its recent messages
// unless the session is read-only.
func (v *View) claimRecent(ctx context.Context) error {
	sh := v.shared
	sh.mu.Lock()
	v.snap, v.row = sh.snap, sh.visibleRow()
	from, to, stored := sh.recentFrom, sh.nextUID, sh.row.recentFrom
	if from >= to || v.readOnly || stored < from {
		v.addRecent(from, to)
		sh.mu.Unlock()
		return nil
	}
	sh.recentFrom = to // before other sessions of this node look
	sh.claims++
	sh.mu.Unlock()
	defer func() {
		sh.mu.Lock()
		sh.claims--
		sh.mu.Unlock()
	}()
	for from < to {
		err := v.store.DB.Write(ctx, v.row.Mailbox, &db.Mutation{
			Guard: func(b *db.Batch) {
				b.Queue(mailbox.LockUsage(v.row.Mailbox))
				b.Queue(claimRecentQuery.With(sh.id, stored, to)).OrFail(errRecentClaimed)
			},
			AfterCommit: func() {
				sh.mu.Lock()
				sh.row.recentFrom = max(sh.row.recentFrom, to)
				sh.mu.Unlock()
			},
		})
		if !errors.Is(err, errRecentClaimed) {
			if err != nil && ctx.Err() != nil {
				return err
			}
			if err != nil { // such as a full disk, where clients must still be able to read mail
				v.store.Log.Warn("noting which messages are no longer recent", "folder", sh.id, "error", err)
			}
			sh.mu.Lock()
			v.addRecent(from, to)
			sh.mu.Unlock()
			return nil
		}
		if err := sh.refresh(ctx, true); err != nil {
			return err
		}
		sh.mu.Lock()
		stored = sh.row.recentFrom
		sh.mu.Unlock()
		from = max(from, stored) // another node was faster up to there
	}
	return nil
}

// addRecent makes the messages with UIDs from from up to, but excluding, to recent to this session
// and, unless it is read-only, not recent to later ones. sh.mu must be held.
func (v *View) addRecent(from, to uint32) {
	last := len(v.recent) - 1
	if last >= 0 {
		from = max(from, v.recent[last].Hi+1)
	}
	if from >= to {
		return
	}
	if last >= 0 && v.recent[last].Hi+1 == from {
		v.recent[last].Hi = to - 1
	} else {
		v.recent = append(v.recent, Range{Lo: from, Hi: to - 1})
	}
	if !v.readOnly {
		v.shared.recentFrom = max(v.shared.recentFrom, to)
	}
}

// IsRecent reports whether a message is recent to the session.
func (v *View) IsRecent(uid uint32) bool {
	return len(v.recent) > 0 && snapshot.ContainsUID(v.recent, uid)
}

// Recent returns the number of the session's messages that are recent to it.
func (v *View) Recent() uint32 {
	n := 0
	for _, r := range v.recent {
		lo, hi := v.snap.IndexRange(r)
		n += hi - lo
	}
	return uint32(n)
}

// saveRecent saves the claims made in memory. During a claim it leaves that to the claiming session,
// which saves them when it ends: that session would take the saved claim for another node's.
func (v *View) saveRecent() {
	sh := v.shared
	sh.mu.Lock()
	from, stored, box := sh.recentFrom, sh.row.recentFrom, sh.row.Mailbox
	claiming := sh.claims > 0
	sh.mu.Unlock()
	if v.readOnly || v.snap == nil || from <= stored || claiming {
		return
	}
	err := v.store.DB.Write(context.Background(), box, &db.Mutation{
		Guard: func(b *db.Batch) {
			b.Queue(mailbox.LockUsage(box))
			b.Queue(raiseRecentQuery.With(sh.id, from))
		},
		AfterCommit: func() {
			sh.mu.Lock()
			sh.row.recentFrom = max(sh.row.recentFrom, from)
			sh.mu.Unlock()
		},
	})
	if err != nil && !errors.Is(err, db.ErrClosed) {
		v.store.Log.Warn("noting which messages are no longer recent", "folder", sh.id, "error", err)
	}
}

// wakeFolder notifies sessions, here and on other nodes, of a change.
func (s *Folders) wakeFolder(id db.ID) { s.Hub.Wake(notify.Key{Kind: notify.Folder, ID: int64(id)}) }
