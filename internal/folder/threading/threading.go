// SPDX-License-Identifier: Apache-2.0

// Package threading makes threads of messages as IMAP's THREAD wants them (RFC
// 5256 §3). It is pure. Whatever the messages refer to, it takes little more
// than linear time, and never recurses.
package threading

import "slices"

// Message is what threads are made by. Keys stand for texts that are compared.
type Message struct {
	ID         int64   // key of its Message-ID; 0 for none
	References []int64 // keys of the Message-IDs that it answers, the nearest last
	Sent       int64   // when it was sent; any unit
	Subject    uint64  // key of the base subject; 0 for the empty one
	Reply      bool    // the subject is that of a reply or a forward
}

// OrderedSubject makes threads by subject alone.
func OrderedSubject(messages []Message) *Threads {
	t := newThreads(messages)
	groups := map[uint64]int32{}
	for i := range messages {
		m := int32(i) + 1
		first, found := groups[messages[i].Subject]
		if !found {
			groups[messages[i].Subject] = m
			t.roots = append(t.roots, m)
			continue
		}
		t.adopt(first, m)
	}
	// The oldest leads, the others hang under it.
	for i, first := range t.roots {
		all := append(t.childrenOf(first), first)
		slices.SortFunc(all, t.compare)
		t.first[first] = 0
		t.setChildren(all[0], all[1:])
		t.roots[i] = all[0]
	}
	slices.SortFunc(t.roots, t.compare)
	return t
}

// maxNodes bounds how many Message-IDs one References keeps, of messages and of
// what these refer to: about 300 MB.
const maxNodes = 4_000_000

// References makes threads by what messages refer to, and then by subject.
type References struct {
	messages []Message
	nodes    map[int64]int32 // by Message-ID
	message  []int32         // the number of each node's message, from 1; 0 for none
	node     []int32         // of each message, from 1
	forest   forest
}

// NewReferences returns one without messages.
func NewReferences() *References {
	return &References{nodes: map[int64]int32{}, message: make([]int32, 1), node: make([]int32, 1), forest: newForest()}
}

// Add takes the next message of the folder (RFC 5256 §3, step 1). It keeps
// nothing of References. It is false when there are too many Message-IDs.
func (r *References) Add(m Message) bool {
	if len(r.message)+len(m.References)+1 > maxNodes {
		return false
	}
	last := int32(0)
	for _, id := range m.References {
		n := r.lookup(id)
		if last != 0 && r.forest.parent[n] == 0 {
			r.forest.link(n, last)
		}
		last = n
	}
	n := r.own(m.ID)
	m.References = nil
	r.messages = append(r.messages, m)
	r.message[n] = int32(len(r.messages))
	r.node = append(r.node, n)
	r.forest.cut(n)
	if last != 0 {
		r.forest.link(n, last)
	}
	return true
}

// lookup returns the node of a Message-ID.
func (r *References) lookup(id int64) int32 {
	n := r.nodes[id]
	if n == 0 {
		n = r.add()
		r.nodes[id] = n
	}
	return n
}

// own returns the node for a message. One without Message-ID, or with that of
// a message before it, gets one that nobody refers to.
func (r *References) own(id int64) int32 {
	if id != 0 {
		if n := r.lookup(id); r.message[n] == 0 {
			return n
		}
	}
	return r.add()
}

func (r *References) add() int32 {
	r.message = append(r.message, 0)
	return r.forest.add()
}

// Threads makes the threads. The References is of no use afterwards.
func (r *References) Threads() *Threads {
	t := newThreads(r.messages)
	r.prune(t)
	t.mergeSubjects()
	t.sort()
	return t
}

// prune hangs messages under messages (steps 2 and 3). What is no message is
// left out, unless several messages at the top have only that in common.
func (r *References) prune(t *Threads) {
	dummies := map[int32]int32{} // of nodes at the top that are no message
	for m := int32(1); int(m) < len(r.node); m++ {
		n := r.node[m]
		up := r.forest.parent[n]
		if up != 0 {
			up = r.anchor(up)
		}
		switch {
		case up == 0:
			t.roots = append(t.roots, m)
		case r.message[up] != 0:
			t.adopt(r.message[up], m)
		default:
			d := dummies[up]
			if d == 0 {
				d = t.addDummy()
				dummies[up] = d
			}
			t.adopt(d, m)
		}
	}
	for _, d := range dummies {
		if only := t.first[d]; t.next[only] == 0 {
			t.roots = append(t.roots, only)
			t.first[d] = 0
		} else {
			t.roots = append(t.roots, d)
		}
	}
}

// anchor returns the first message on the way up from n, or else the top. The
// nodes between are made to point there, for who comes next.
func (r *References) anchor(n int32) int32 {
	up := r.forest.parent
	end := n
	for r.message[end] == 0 && up[end] != 0 {
		end = up[end]
	}
	for n != end {
		n, up[n] = up[n], end
	}
	return end
}
