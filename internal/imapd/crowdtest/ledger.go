// SPDX-License-Identifier: Apache-2.0

package crowdtest

import (
	"slices"
	"strings"
	"sync"
	"sync/atomic"
)

// ledger is what all sessions were told together.
type ledger struct {
	answers   atomic.Int64
	oneRecent bool

	mu    sync.Mutex
	clock int // counts what is noted, to tell earlier from later
	books map[string]*book
}

// book is what all sessions were told of a folder.
type book struct {
	validity uint32
	subjects map[uint32]string            // by UID
	flags    map[uint32]map[uint64]string // by UID and mod-sequence
	gone     map[uint32]int               // when somebody was told first that a message is gone
	recent   map[uint32]int               // the selection that a message was recent to
	stores   map[owned][]stored
	made     []conditional
	fresh    map[uint32]bool // messages of which something was told since the last audit
	lastUID  uint32          // the highest that was told
	highest  uint64          // the highest HIGHESTMODSEQ that SELECT told
}

// owned is the keyword that only one session sets and removes, at a message.
type owned struct {
	uid   uint32
	owner string
}

// stored is what its owner knows of it: set or not, from a mod-sequence on.
type stored struct {
	modseq uint64
	set    bool
}

// conditional is a STORE that was to happen only if nobody had changed the
// message since.
type conditional struct {
	uid         uint32
	since, made uint64
}

func newLedger(oneRecent bool) *ledger {
	l := &ledger{oneRecent: oneRecent, books: map[string]*book{}}
	for _, name := range folders {
		l.books[name] = &book{subjects: map[uint32]string{}, flags: map[uint32]map[uint64]string{}, gone: map[uint32]int{},
			recent: map[uint32]int{}, stores: map[owned][]stored{}, fresh: map[uint32]bool{}}
	}
	return l
}

// with calls f with a folder's book and the time.
func (l *ledger) with(folder string, f func(b *book, now int) error) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.clock++
	return f(l.books[folder], l.clock)
}

// subject notes whose message has a UID, which never changes.
func (b *book) subject(uid uint32, subject string) error {
	if was, known := b.subjects[uid]; known && was != subject {
		return contradiction("UID %d is %q and was %q", uid, subject, was)
	}
	b.subjects[uid] = subject
	return nil
}

// state notes the flags that a message had at a mod-sequence: all sessions see
// the same.
func (b *book) state(m message) error {
	b.lastUID = max(b.lastUID, m.uid)
	if m.modseq == 0 {
		return nil
	}
	all := b.flags[m.uid]
	if all == nil {
		all = map[uint64]string{}
		b.flags[m.uid] = all
	}
	was, known := all[m.modseq]
	switch {
	case !known:
		all[m.modseq], b.fresh[m.uid] = m.flags, true
	case was != m.flags:
		return contradiction("UID %d has at mod-sequence %d the flags %q, and for others %q", m.uid, m.modseq, m.flags, was)
	}
	return nil
}

func (l *ledger) messages() (n int) {
	for _, b := range l.books {
		n += len(b.flags)
	}
	return n
}

func (l *ledger) states() (n int) {
	for _, b := range l.books {
		for _, all := range b.flags {
			n += len(all)
		}
	}
	return n
}

// audit checks what can only be judged when everybody has been heard.
func (l *ledger) audit() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	for name, b := range l.books {
		for uid := range b.fresh {
			if err := b.auditOwned(name, uid, b.flags[uid]); err != nil {
				return err
			}
		}
		clear(b.fresh)
		for _, c := range b.made {
			for at := range b.flags[c.uid] {
				if at > c.since && at < c.made {
					return contradiction("%s: UID %d was stored at %d as unchanged since %d, but had changed at %d", name, c.uid, c.made, c.since, at)
				}
			}
		}
		b.made = b.made[:0]
	}
	return nil
}

// auditOwned checks that keywords are as their owners left them: before the
// first STORE of the owner as they came, then as it says.
func (b *book) auditOwned(name string, uid uint32, states map[uint64]string) error {
	first := map[string]string{} // by owner, what was told before its first STORE
	for at, text := range states {
		flags := strings.Fields(text)
		for _, keyword := range ownKeywords {
			set := slices.Contains(flags, keyword)
			history := b.stores[owned{uid, keyword}]
			last := -1
			for i, s := range history { // in the order in which they were made
				if s.modseq <= at {
					last = i
				}
			}
			switch {
			case last >= 0 && history[last].set != set:
				return contradiction("%s: UID %d has at %d the flags %q, but the owner of %s left it %v at %d",
					name, uid, at, flags, keyword, history[last].set, history[last].modseq)
			case last >= 0:
			case first[keyword] == "":
				first[keyword] = word(set)
			case first[keyword] != word(set):
				return contradiction("%s: UID %d lost or got %s by mod-sequence %d, which its owner had not touched", name, uid, keyword, at)
			}
		}
	}
	return nil
}

func word(set bool) string {
	if set {
		return "set"
	}
	return "not set"
}
