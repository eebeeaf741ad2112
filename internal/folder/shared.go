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
	"github.com/mailstead/mailstead/internal/signal"
)

// shared is what the node knows of an open folder. Its sessions have it in
// common.
type shared struct {
	store *Store
	id    db.ID
	sub   *signal.Sub
	refs  int // sessions; guarded by store.mu

	// write is held by a command that changes messages. The database would
	// decline all but one of several at once.
	write sync.Mutex
	// look is held while the folder is read or a change is taken over.
	look    sync.Mutex
	checked time.Time
	ahead   uint64 // the highest mod-sequence that was read with the folder's row

	messages messageIDs // for the searches

	mu     sync.Mutex // guards what follows
	row    Folder     // as last read
	loaded bool
	words  *wordTable
	snap   *snapshot
	next   uint32 // messages below are in snap, or gone
	// changed is the mod-sequence up to which changes are in snap. The
	// database carries out a change only if nobody else's came after this.
	changed uint64
	// recentFrom: messages from here on no session was told of.
	recentFrom uint32
	kept       storedView

	saving sync.Mutex // held while the view is stored
	size   int        // bytes, of an idle view; guarded by store.mu
}

// acquire returns the shared view of a folder for one more session.
func (s *Store) acquire(id db.ID) *shared {
	s.mu.Lock()
	defer s.mu.Unlock()
	sh := s.open[id]
	if sh == nil {
		// Its signal comes before those of its sessions, which subscribe later:
		// who is woken finds what there is.
		sh = &shared{
			store: s, id: id, words: newWordTable(), snap: &snapshot{}, next: 1,
			sub: s.Hub.Subscribe(signal.Key{Kind: signal.Folder, ID: int64(id)}),
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

// release gives the view back. Without sessions it stays for a while, as the
// same client tends to come back; the longest idle ones go first.
func (s *Store) release(sh *shared) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if sh.refs--; sh.refs > 0 {
		return
	}
	sh.messages.forget()
	sh.size = sh.weight()
	s.idle = append(s.idle, sh)
	s.forgetSome()
}

// forgetSome drops the views that were idle for longest, as long as they take
// more room than they may; s.mu is held. Those that are to be stored first stay
// until Run has done it.
func (s *Store) forgetSome() {
	kept := 0
	for _, sh := range s.idle {
		kept += sh.size
	}
	for i := 0; i < len(s.idle) && kept > s.Keep; {
		if s.idle[i].unsaved() {
			i++
			continue
		}
		kept -= s.idle[i].size
		s.forget(s.idle[i])
		s.idle = slices.Delete(s.idle, i, i+1)
	}
}

// forget drops a view that no session has; s.mu is held.
func (s *Store) forget(sh *shared) {
	sh.sub.Close()
	delete(s.open, sh.id)
}

// forgetIdle drops the views that no session has had for a time, so that
// memory comes back when everybody has gone home.
func (s *Store) forgetIdle(before time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.idle = slices.DeleteFunc(s.idle, func(sh *shared) bool {
		sh.look.Lock()
		old := sh.checked.Before(before)
		sh.look.Unlock()
		if old {
			s.forget(sh)
		}
		return old
	})
}

// claimed returns from which UID on messages of a folder are recent, as far as
// this node's sessions know; 0 if none has it open.
func (s *Store) claimed(id db.ID) uint32 {
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

// weight is about how many bytes of memory a view takes; even an empty one holds
// something.
func (sh *shared) weight() int {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	sum := 2_000 + sh.words.weight()
	for _, slot := range sh.snap.slots {
		sum += slot.bytes()
	}
	return sum
}

// storeViews stores the views of large folders that have changed much, and
// forgets what had to wait for that.
func (s *Store) storeViews(ctx context.Context, sooner int) error {
	s.mu.Lock()
	all := slices.Collect(maps.Values(s.open))
	s.mu.Unlock()
	var failed error
	for _, sh := range all {
		if ctx.Err() != nil {
			break
		}
		if _, err := sh.storeView(ctx, sooner); err != nil && !fault.Is(err, fault.NotFound) {
			failed = errors.Join(failed, err)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.forgetSome()
	return failed
}

// state returns what a command starts from.
func (sh *shared) state() (snap *snapshot, changed uint64) {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	return sh.snap, sh.changed
}

// publish takes over a change that this node has committed with mod-sequence
// modseq, on top of the state of which changed was the last. It returns what
// the view was before and is now; messages may have arrived before it.
func (sh *shared) publish(changed, modseq uint64, put []entry, drop []uint32) (before, now *snapshot) {
	// A refresh in progress may have read before the commit; it has to be
	// through before the change is put on top.
	sh.look.Lock()
	defer sh.look.Unlock()
	sh.mu.Lock()
	defer sh.mu.Unlock()
	before = sh.snap
	if sh.changed == changed {
		sh.snap = sh.snap.with(put, drop)
		sh.changed = modseq
	}
	// Otherwise a refresh has read it from the log already.
	return before, sh.snap
}

// tell tells the others that wait of a change that was published, which took the
// folder from one mod-sequence to another and so much from what it adds up to. If
// nothing else had happened the row is known, and nobody here needs to read it.
func (sh *shared) tell(was, modseq uint64, less totals) {
	sh.mu.Lock()
	if r := &sh.row; r.ModSeq == was {
		r.ModSeq, r.changed = modseq, modseq
		r.Messages -= uint32(less.messages)
		r.Unseen -= uint32(less.unseen) // two's complement: it may be more
		r.Bytes -= less.bytes
	}
	sh.mu.Unlock()
	sh.sub.WakeOthers()
}
