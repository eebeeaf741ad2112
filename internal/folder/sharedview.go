// SPDX-License-Identifier: Apache-2.0

package folder

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/folder/snapshot"
	"github.com/mailstead/mailstead/internal/notify"
)

// sharedView is a node's view of an open folder, shared by its sessions.
type sharedView struct {
	store *Folders
	id    db.ID
	sub   *notify.Subscription
	refs  int // number of sessions; guarded by store.mu

	// writeMu is held by a command that changes messages. The database would decline all but one of
	// several concurrent ones.
	writeMu sync.Mutex
	// refreshMu is held while the folder is read or a change is published.
	refreshMu     sync.Mutex
	stale         bool   // whether a signal came, or a read failed, since all was read
	maxReadModSeq uint64 // the highest mod-sequence that was read with the folder's row

	idCache uidToIDCache // for searches

	mu       sync.Mutex // guards the fields below
	row      Folder     // as last read
	loaded   bool
	keywords *snapshot.KeywordTable
	snap     *snapshot.Snapshot
	nextUID  uint32 // messages with lower UIDs are in snap, or gone
	// changeModSeq is the mod-sequence up to which changes are in snap. The database applies a
	// change only if no other one came after it.
	changeModSeq uint64
	// recentFrom is the UID from which on no session was told of messages.
	recentFrom uint32
	claims     int // sessions that are claiming recent messages in the database
	saved      savedView

	saveMu    sync.Mutex // held while the view is stored
	idleBytes int        // memory of an idle view; guarded by store.mu
	idleSince time.Time  // likewise
}

// acquireView returns the shared view of a folder for one more session.
func (s *Folders) acquireView(id db.ID) *sharedView {
	s.mu.Lock()
	defer s.mu.Unlock()
	sh := s.open[id]
	if sh == nil {
		// The view subscribes before its sessions do, so it is signaled first: a session that is
		// woken finds the view's signal.
		sh = &sharedView{
			store: s, id: id, keywords: snapshot.NewKeywordTable(), snap: &snapshot.Snapshot{}, nextUID: 1, stale: true,
			sub: s.Hub.Subscribe(notify.Key{Kind: notify.Folder, ID: int64(id)}),
		}
		s.open[id] = sh
	}
	if sh.refs == 0 {
		if at := slices.Index(s.idle, sh); at >= 0 {
			s.idle = slices.Delete(s.idle, at, at+1)
		}
	}
	sh.refs++
	return sh
}

// releaseView ends a session's use of the view. A view without sessions stays in memory for some
// time, because the same client tends to come back. The longest idle views are evicted first.
func (s *Folders) releaseView(sh *sharedView) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if sh.refs--; sh.refs > 0 {
		return
	}
	sh.idCache.reset()
	sh.idleBytes, sh.idleSince = sh.memoryBytes(), s.Now()
	s.idle = append(s.idle, sh)
	s.evictIdle()
}

// evictIdle evicts the longest idle views while idle views exceed MaxIdleViewBytes; s.mu must be
// held. Views that must be stored first stay until Run has stored them.
func (s *Folders) evictIdle() {
	kept := 0
	for _, sh := range s.idle {
		kept += sh.idleBytes
	}
	for i := 0; i < len(s.idle) && kept > s.MaxIdleViewBytes; {
		if s.idle[i].needsSave() {
			i++
			continue
		}
		kept -= s.idle[i].idleBytes
		s.evict(s.idle[i])
		s.idle = slices.Delete(s.idle, i, i+1)
	}
}

// evict drops a view without sessions; s.mu must be held.
func (s *Folders) evict(sh *sharedView) {
	sh.sub.Close()
	delete(s.open, sh.id)
}

// evictExpired evicts the views without sessions since before, to free memory in quiet times.
func (s *Folders) evictExpired(before time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.idle = slices.DeleteFunc(s.idle, func(sh *sharedView) bool {
		old := sh.idleSince.Before(before)
		if old {
			s.evict(sh)
		}
		return old
	})
}

// recentFrom returns the UID from which on messages of a folder are recent, according to this
// node's sessions; 0 if no session has it open.
func (s *Folders) recentFrom(id db.ID) uint32 {
	s.mu.Lock()
	sh := s.open[id]
	s.mu.Unlock()
	if sh == nil {
		return 0
	}
	sh.mu.Lock()
	defer sh.mu.Unlock()
	return sh.recentFrom
}

// memoryBytes returns approximately how many bytes of memory a view takes. An empty view takes
// some, too.
func (sh *sharedView) memoryBytes() int {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	return 2_000 + sh.keywords.MemoryBytes() + sh.snap.MemoryBytes()
}

// saveViews stores the views of large folders that have changed much, and evicts views that were
// waiting for that.
func (s *Folders) saveViews(ctx context.Context, sooner int) error {
	s.mu.Lock()
	all := slices.Collect(maps.Values(s.open))
	s.mu.Unlock()
	var failed error
	for _, sh := range all {
		if ctx.Err() != nil {
			break
		}
		if _, err := sh.save(ctx, sooner); err != nil && !fault.Is(err, fault.NotFound) {
			failed = errors.Join(failed, err)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.evictIdle()
	return failed
}

// current returns the snapshot and the mod-sequence from which a command starts.
func (sh *sharedView) current() (snap *snapshot.Snapshot, changed uint64) {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	return sh.snap, sh.changeModSeq
}

// publish adds a change that this node has committed with mod-sequence modseq, if the view's last
// change is changed. It returns the snapshots before and after it. Messages may have arrived before
// the change.
func (sh *sharedView) publish(changed, modseq uint64, put []snapshot.Entry, drop []uint32) (before, now *snapshot.Snapshot) {
	// A refresh in progress may have read before the commit. It must finish before the change is
	// added.
	sh.refreshMu.Lock()
	defer sh.refreshMu.Unlock()
	sh.mu.Lock()
	defer sh.mu.Unlock()
	before = sh.snap
	if sh.changeModSeq == changed {
		sh.snap = sh.snap.Apply(put, drop)
		sh.changeModSeq = modseq
	}
	// Otherwise a refresh has already read the change from the log.
	return before, sh.snap
}

// notifyOthers notifies the other waiting sessions of a published change, which raised the folder's
// mod-sequence from was to modseq and reduced its totals by less. If nothing else has happened the
// row is known, and nobody on this node needs to read it.
func (sh *sharedView) notifyOthers(was, modseq uint64, less totals) {
	sh.mu.Lock()
	if r := &sh.row; r.ModSeq == was {
		r.ModSeq, r.changeModSeq = modseq, modseq
		r.Messages -= uint32(less.messages)
		r.Unseen -= uint32(less.unseen) // two's complement: the number may grow
		r.Bytes -= less.bytes
	}
	sh.mu.Unlock()
	sh.sub.WakeOthers()
}
