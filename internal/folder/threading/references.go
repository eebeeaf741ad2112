// SPDX-License-Identifier: Apache-2.0

// Package threading implements the algorithms of IMAP's THREAD (RFC 5256 §3). It does no I/O. For
// all inputs it takes little more than linear time, and never recurses.
package threading

import "slices"

// Message is the input for threading. Keys represent texts that are compared for equality.
type Message struct {
	ID         int64   // key of its Message-ID; 0 for none
	References []int64 // keys of the Message-IDs that it refers to, the nearest last
	Sent       int64   // when it was sent; any unit
	Subject    uint64  // key of the base subject; 0 for the empty one
	IsReply    bool    // whether the subject is that of a reply or a forward
}

// ByOrderedSubject threads messages by subject only.
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
	// The oldest message is the parent of the others.
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

// maxNodes limits the Message-IDs of one ReferencesBuilder, of messages and of their references:
// about 300 MB.
const maxNodes = 4_000_000

// ReferencesBuilder threads messages by references, and then by subject.
type ReferencesBuilder struct {
	messages      []Message
	nodes         map[int64]int32 // by Message-ID
	messageOfNode []int32         // the number of each node's message, from 1; 0 for none
	nodeOfMessage []int32         // of each message, from 1
	forest        forest
}

// NewReferencesBuilder returns a builder without messages.
func NewReferencesBuilder() *ReferencesBuilder {
	return &ReferencesBuilder{nodes: map[int64]int32{}, messageOfNode: make([]int32, 1), nodeOfMessage: make([]int32, 1), forest: newForest()}
}

// Add adds the next message of the folder (RFC 5256 §3, step 1). It does not retain m.References.
// It returns false when there are too many Message-IDs.
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

// assignNode returns the node for a message. A message without a Message-ID, or with that of an
// earlier message, gets a node that nothing refers to.
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

// Threads builds the threads. The ReferencesBuilder can't be used afterwards.
func (r *ReferencesBuilder) Threads() *Threads {
	t := newThreads(r.messages)
	r.buildTree(t)
	t.mergeSubjects()
	t.sort()
	return t
}

// buildTree connects messages to their parents (steps 2 and 3). It leaves out nodes without a
// message, unless several messages at the top have only that node in common.
func (r *ReferencesBuilder) buildTree(t *Threads) {
	dummies := map[int32]int32{} // of top nodes without a message
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

// nearestMessage returns the nearest ancestor of n that is a message, or else the root. It shortens
// the path for later calls.
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
