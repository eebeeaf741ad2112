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
	"github.com/mailstead/mailstead/internal/notify"
)

// sharedView is what the node knows of an open folder. Its sessions have it in
// common.
type sharedView struct {
	store *Store
	id    db.ID
	sub   *notify.Subscription
	refs  int // sessions; guarded by store.mu

	// writeMu is held by a command that changes messages. The database would
	// decline all but one of several at once.
	writeMu sync.Mutex
	// refreshMu is held while the folder is read or a change is taken over.
	refreshMu     sync.Mutex
	checkedAt     time.Time
	maxReadModSeq uint64 // the highest mod-sequence that was read with the folder's row

	idCache messageIDCache // for the searches

	mu       sync.Mutex // guards what follows
	row      Folder     // as last read
	loaded   bool
	keywords *keywordTable
	snap     *snapshot
	nextUID  uint32 // messages below are in snap, or gone
	// changeModSeq is the mod-sequence up to which changes are in snap. The
	// database carries out a change only if nobody else's came after this.
	changeModSeq uint64
	// recentFrom: messages from here on no session was told of.
	recentFrom uint32
	saved      savedView

	saveMu    sync.Mutex // held while the view is stored
	idleBytes int        // bytes, of an idle view; guarded by store.mu
}

// acquireView returns the shared view of a folder for one more session.
func (s *Store) acquireView(id db.ID) *sharedView {
	s.mu.Lock()
	defer s.mu.Unlock()
	sh := s.open[id]
	if sh == nil {
		// Its signal comes before those of its sessions, which subscribe later:
		// who is woken finds what there is.
		sh = &sharedView{
			store: s, id: id, keywords: newKeywordTable(), snap: &snapshot{}, nextUID: 1,
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

// releaseView gives the view back. Without sessions it stays for a while, as the
// same client tends to come back; the longest idle ones go first.
func (s *Store) releaseView(sh *sharedView) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if sh.refs--; sh.refs > 0 {
		return
	}
	sh.idCache.reset()
	sh.idleBytes = sh.memoryBytes()
	s.idle = append(s.idle, sh)
	s.evictIdle()
}

// evictIdle drops the views that were idle for longest, as long as they take
// more room than they may; s.mu is held. Those that are to be stored first stay
// until Run has done it.
func (s *Store) evictIdle() {
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

// evict drops a view that no session has; s.mu is held.
func (s *Store) evict(sh *sharedView) {
	sh.sub.Close()
	delete(s.open, sh.id)
}

// evictExpired drops the views that no session has had for a time, so that
// memory comes back when everybody has gone home.
func (s *Store) evictExpired(before time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.idle = slices.DeleteFunc(s.idle, func(sh *sharedView) bool {
		sh.refreshMu.Lock()
		old := sh.checkedAt.Before(before)
		sh.refreshMu.Unlock()
		if old {
			s.evict(sh)
		}
		return old
	})
}

// recentFrom returns from which UID on messages of a folder are recent, as far as
// this node's sessions know; 0 if none has it open.
func (s *Store) recentFrom(id db.ID) uint32 {
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

// memoryBytes is about how many bytes of memory a view takes; even an empty one holds
// something.
func (sh *sharedView) memoryBytes() int {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	sum := 2_000 + sh.keywords.memoryBytes()
	for _, slot := range sh.snap.slots {
		sum += slot.memoryBytes()
	}
	return sum
}

// saveViews stores the views of large folders that have changed much, and
// forgets what had to wait for that.
func (s *Store) saveViews(ctx context.Context, sooner int) error {
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

// current returns what a command starts from.
func (sh *sharedView) current() (snap *snapshot, changed uint64) {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	return sh.snap, sh.changeModSeq
}

// publish takes over a change that this node has committed with mod-sequence
// modseq, on top of the state of which changed was the last. It returns what
// the view was before and is now; messages may have arrived before it.
func (sh *sharedView) publish(changed, modseq uint64, put []entry, drop []uint32) (before, now *snapshot) {
	// A refresh in progress may have read before the commit; it has to be
	// through before the change is put on top.
	sh.refreshMu.Lock()
	defer sh.refreshMu.Unlock()
	sh.mu.Lock()
	defer sh.mu.Unlock()
	before = sh.snap
	if sh.changeModSeq == changed {
		sh.snap = sh.snap.apply(put, drop)
		sh.changeModSeq = modseq
	}
	// Otherwise a refresh has read it from the log already.
	return before, sh.snap
}

// notifyOthers tells the others that wait of a change that was published, which took the
// folder from one mod-sequence to another and so much from what it adds up to. If
// nothing else had happened the row is known, and nobody here needs to read it.
func (sh *sharedView) notifyOthers(was, modseq uint64, less totals) {
	sh.mu.Lock()
	if r := &sh.row; r.ModSeq == was {
		r.ModSeq, r.changeModSeq = modseq, modseq
		r.Messages -= uint32(less.messages)
		r.Unseen -= uint32(less.unseen) // two's complement: it may be more
		r.Bytes -= less.bytes
	}
	sh.mu.Unlock()
	sh.sub.WakeOthers()
}
