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
	IsReply    bool    // the subject is that of a reply or a forward
}

// ByOrderedSubject makes threads by subject alone.
func ByOrderedSubject(messages []Message) *Threads {
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
		t.addChild(first, m)
	}
	// The oldest leads, the others hang under it.
	for i, first := range t.roots {
		all := append(t.childrenOf(first), first)
		slices.SortFunc(all, t.compare)
		t.firstChild[first] = 0
		t.setChildren(all[0], all[1:])
		t.roots[i] = all[0]
	}
	slices.SortFunc(t.roots, t.compare)
	return t
}

// maxNodes bounds how many Message-IDs one ReferencesBuilder keeps, of messages and of
// what these refer to: about 300 MB.
const maxNodes = 4_000_000

// ReferencesBuilder makes threads by what messages refer to, and then by subject.
type ReferencesBuilder struct {
	messages      []Message
	nodes         map[int64]int32 // by Message-ID
	messageOfNode []int32         // the number of each node's message, from 1; 0 for none
	nodeOfMessage []int32         // of each message, from 1
	forest        forest
}

// NewReferencesBuilder returns one without messages.
func NewReferencesBuilder() *ReferencesBuilder {
	return &ReferencesBuilder{nodes: map[int64]int32{}, messageOfNode: make([]int32, 1), nodeOfMessage: make([]int32, 1), forest: newForest()}
}

// Add takes the next message of the folder (RFC 5256 §3, step 1). It keeps
// nothing of ReferencesBuilder. It is false when there are too many Message-IDs.
func (r *ReferencesBuilder) Add(m Message) bool {
	if len(r.messageOfNode)+len(m.References)+1 > maxNodes {
		return false
	}
	last := int32(0)
	for _, id := range m.References {
		n := r.nodeOf(id)
		if last != 0 && r.forest.parent[n] == 0 {
			r.forest.link(n, last)
		}
		last = n
	}
	n := r.assignNode(m.ID)
	m.References = nil
	r.messages = append(r.messages, m)
	r.messageOfNode[n] = int32(len(r.messages))
	r.nodeOfMessage = append(r.nodeOfMessage, n)
	r.forest.cut(n)
	if last != 0 {
		r.forest.link(n, last)
	}
	return true
}

// nodeOf returns the node of a Message-ID.
func (r *ReferencesBuilder) nodeOf(id int64) int32 {
	n := r.nodes[id]
	if n == 0 {
		n = r.addNode()
		r.nodes[id] = n
	}
	return n
}

// assignNode returns the node for a message. One without Message-ID, or with that of
// a message before it, gets one that nobody refers to.
func (r *ReferencesBuilder) assignNode(id int64) int32 {
	if id != 0 {
		if n := r.nodeOf(id); r.messageOfNode[n] == 0 {
			return n
		}
	}
	return r.addNode()
}

func (r *ReferencesBuilder) addNode() int32 {
	r.messageOfNode = append(r.messageOfNode, 0)
	return r.forest.add()
}

// Threads makes the threads. The ReferencesBuilder is of no use afterwards.
func (r *ReferencesBuilder) Threads() *Threads {
	t := newThreads(r.messages)
	r.buildTree(t)
	t.mergeSubjects()
	t.sort()
	return t
}

// buildTree hangs messages under messages (steps 2 and 3). What is no message is
// left out, unless several messages at the top have only that in common.
func (r *ReferencesBuilder) buildTree(t *Threads) {
	dummies := map[int32]int32{} // of nodes at the top that are no message
	for m := int32(1); int(m) < len(r.nodeOfMessage); m++ {
		n := r.nodeOfMessage[m]
		up := r.forest.parent[n]
		if up != 0 {
			up = r.nearestMessage(up)
		}
		switch {
		case up == 0:
			t.roots = append(t.roots, m)
		case r.messageOfNode[up] != 0:
			t.addChild(r.messageOfNode[up], m)
		default:
			d := dummies[up]
			if d == 0 {
				d = t.addDummy()
				dummies[up] = d
			}
			t.addChild(d, m)
		}
	}
	for _, d := range dummies {
		if only := t.firstChild[d]; t.nextSibling[only] == 0 {
			t.roots = append(t.roots, only)
			t.firstChild[d] = 0
		} else {
			t.roots = append(t.roots, d)
		}
	}
}

// nearestMessage returns the first message on the way up from n, or else the top. The
// nodes between are made to point there, for who comes next.
func (r *ReferencesBuilder) nearestMessage(n int32) int32 {
	up := r.forest.parent
	end := n
	for r.messageOfNode[end] == 0 && up[end] != 0 {
		end = up[end]
	}
	for n != end {
		n, up[n] = up[n], end
	}
	return end
}
