// SPDX-License-Identifier: Apache-2.0

package crowdtest

import (
	"slices"
	"strings"
	"sync"
	"sync/atomic"
)

// history is everything that the server has told all sessions.
type history struct {
	responses       atomic.Int64
	exclusiveRecent bool

	mu      sync.Mutex
	clock   int // counts the recorded events, to order them
	folders map[string]*folderHistory
}

// folderHistory is everything that the server has told all sessions about a folder.
type folderHistory struct {
	uidValidity       uint32
	subjects          map[uint32]string            // by UID
	states            map[uint32]map[uint64]string // by UID and mod-sequence
	expungedAt        map[uint32]int               // when a session was first told that a message is gone
	recentTo          map[uint32]int               // the selection to which a message was recent
	ownStores         map[ownedKeyword][]ownStore
	conditionalStores []conditionalStore
	unchecked         map[uint32]bool // messages with new information since the last check
	lastUID           uint32          // the highest UID reported
	highestModSeq     uint64          // the highest HIGHESTMODSEQ that SELECT reported
}

// ownedKeyword is a keyword of a message that only one session sets and removes.
type ownedKeyword struct {
	uid   uint32
	owner string
}

// ownStore is a STORE of the keyword's owner: set or not, from a mod-sequence on.
type ownStore struct {
	modseq uint64
	set    bool
}

// conditionalStore is a STORE that must take effect only if nobody had changed the message since.
type conditionalStore struct {
	uid                    uint32
	unchangedSince, modSeq uint64
}

func newHistory(oneRecent bool) *history {
	l := &history{exclusiveRecent: oneRecent, folders: map[string]*folderHistory{}}
	for _, name := range folders {
		l.folders[name] = &folderHistory{subjects: map[uint32]string{}, states: map[uint32]map[uint64]string{}, expungedAt: map[uint32]int{},
			recentTo: map[uint32]int{}, ownStores: map[ownedKeyword][]ownStore{}, unchecked: map[uint32]bool{}}
	}
	return l
}

// update calls f with a folder's history and the time.
func (l *history) update(folder string, f func(b *folderHistory, now int) error) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.clock++
	return f(l.folders[folder], l.clock)
}

// recordSubject records the subject of the message with a UID, which never changes.
func (b *folderHistory) recordSubject(uid uint32, subject string) error {
	if was, known := b.subjects[uid]; known && was != subject {
		return contradictionError("UID %d is %q and was %q", uid, subject, was)
	}
	b.subjects[uid] = subject
	return nil
}

// recordState records the flags that a message had at a mod-sequence: all sessions must see the
// same.
func (b *folderHistory) recordState(m message) error {
	b.lastUID = max(b.lastUID, m.uid)
	if m.modseq == 0 {
		return nil
	}
	all := b.states[m.uid]
	if all == nil {
		all = map[uint64]string{}
		b.states[m.uid] = all
	}
	was, known := all[m.modseq]
	switch {
	case !known:
		all[m.modseq], b.unchecked[m.uid] = m.flags, true
	case was != m.flags:
		return contradictionError("UID %d has at mod-sequence %d the flags %q, and for others %q", m.uid, m.modseq, m.flags, was)
	}
	return nil
}

func (l *history) messageCount() (n int) {
	for _, b := range l.folders {
		n += len(b.states)
	}
	return n
}

func (l *history) stateCount() (n int) {
	for _, b := range l.folders {
		for _, all := range b.states {
			n += len(all)
		}
	}
	return n
}

// check checks the conditions that need the responses of all sessions.
func (l *history) check() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	for name, b := range l.folders {
		for uid := range b.unchecked {
			if err := b.checkOwned(name, uid, b.states[uid]); err != nil {
				return err
			}
		}
		clear(b.unchecked)
		for _, c := range b.conditionalStores {
			for at := range b.states[c.uid] {
				if at > c.unchangedSince && at < c.modSeq {
					return contradictionError("%s: UID %d was stored at %d as unchanged since %d, but had changed at %d", name, c.uid, c.modSeq, c.unchangedSince, at)
				}
			}
		}
		b.conditionalStores = b.conditionalStores[:0]
	}
	return nil
}

// checkOwned checks that keywords are as their owners left them: unchanged before the owner's first
// STORE, then as the owner stored them.
func (b *folderHistory) checkOwned(name string, uid uint32, states map[uint64]string) error {
	first := map[string]string{} // by owner, what was reported before its first STORE
	for at, text := range states {
		flags := strings.Fields(text)
		for _, keyword := range ownKeywords {
			set := slices.Contains(flags, keyword)
			history := b.ownStores[ownedKeyword{uid, keyword}]
			last := -1
			for i, s := range history { // in the order in which they were executed
				if s.modseq <= at {
					last = i
				}
			}
			switch {
			case last >= 0 && history[last].set != set:
				return contradictionError("%s: UID %d has at %d the flags %q, but the owner of %s left it %v at %d",
					name, uid, at, flags, keyword, history[last].set, history[last].modseq)
			case last >= 0:
			case first[keyword] == "":
				first[keyword] = setOrNot(set)
			case first[keyword] != setOrNot(set):
				return contradictionError("%s: UID %d lost or got %s by mod-sequence %d, which its owner had not touched", name, uid, keyword, at)
			}
		}
	}
	return nil
}

func setOrNot(set bool) string {
	if set {
		return "set"
	}
	return "not set"
}
