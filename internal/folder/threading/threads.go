// SPDX-License-Identifier: Apache-2.0

package threading

import (
	"cmp"
	"slices"
)

// Threads are trees of messages. Messages are numbered from 1. Dummies, which occur only at the
// top, are numbered after them.
type Threads struct {
	messages                []Message
	roots                   []int32
	firstChild, nextSibling []int32 // the first child, and the next sibling; 0 for none
	oldestChild             []int32 // of each dummy: its oldest child
}

func newThreads(messages []Message) *Threads {
	n := len(messages) + 1
	return &Threads{messages: messages, firstChild: make([]int32, n), nextSibling: make([]int32, n)}
}

func (t *Threads) addDummy() int32 {
	t.firstChild, t.nextSibling, t.oldestChild = append(t.firstChild, 0), append(t.nextSibling, 0), append(t.oldestChild, 0)
	return int32(len(t.firstChild) - 1)
}

func (t *Threads) isDummy(n int32) bool { return int(n) > len(t.messages) }

// representative returns the message by which a node is sorted: itself, or the oldest child of a
// dummy.
func (t *Threads) representative(n int32) int32 {
	if t.isDummy(n) {
		return t.oldestChild[int(n)-len(t.messages)-1]
	}
	return n
}

func (t *Threads) messageOf(n int32) *Message { return &t.messages[t.representative(n)-1] }

// compare orders messages by sent date, then by position in the folder (RFC 5256 §2.2).
func (t *Threads) compare(a, b int32) int {
	if c := cmp.Compare(t.messageOf(a).Sent, t.messageOf(b).Sent); c != 0 {
		return c
	}
	return cmp.Compare(t.representative(a), t.representative(b))
}

// addChild makes the message c a child of n.
func (t *Threads) addChild(n, c int32) {
	t.nextSibling[c], t.firstChild[n] = t.firstChild[n], c
	if t.isDummy(n) {
		if lead := &t.oldestChild[int(n)-len(t.messages)-1]; *lead == 0 || t.compare(c, *lead) < 0 {
			*lead = c
		}
	}
}

func (t *Threads) childrenOf(n int32) (list []int32) {
	for c := t.firstChild[n]; c != 0; c = t.nextSibling[c] {
		list = append(list, c)
	}
	return list
}

func (t *Threads) setChildren(n int32, list []int32) {
	at := &t.firstChild[n]
	for _, c := range list {
		*at = c
		at = &t.nextSibling[c]
	}
	*at = 0
}

// mergeSubjects merges threads with the same subject (steps 4 and 5).
func (t *Threads) mergeSubjects() {
	slices.SortFunc(t.roots, t.compare)
	table := map[uint64]int32{}
	subjects := make([]uint64, len(t.roots)) // before threads are merged
	for i, n := range t.roots {
		m := t.messageOf(n)
		if subjects[i] = m.Subject; m.Subject == 0 {
			continue
		}
		have := table[m.Subject]
		if have == 0 || !t.isDummy(have) && (t.isDummy(n) || t.messageOf(have).IsReply && !m.IsReply) {
			table[m.Subject] = n
		}
	}
	merged := make([]bool, len(t.firstChild)) // no longer at the top
	top := t.roots[:0:0]
	for i, n := range t.roots {
		have := table[subjects[i]]
		switch {
		case have == 0 || have == n:
		case merged[n]:
			continue
		case t.isDummy(have):
			merged[n] = true
			t.mergeUnder(have, n)
		case t.messageOf(n).IsReply && !t.messageOf(have).IsReply:
			merged[n] = true
			t.addChild(have, n)
		default:
			d := t.addDummy()
			merged = append(merged, false)
			merged[n], merged[have] = true, true
			t.addChild(d, have)
			t.addChild(d, n)
			table[subjects[i]] = d
			top = append(top, d)
		}
		top = append(top, n)
	}
	t.roots = slices.DeleteFunc(top, func(n int32) bool { return merged[n] })
}

// mergeUnder makes n, or the children of n if it is a dummy too, children of a dummy.
func (t *Threads) mergeUnder(dummy, n int32) {
	if !t.isDummy(n) {
		t.addChild(dummy, n)
		return
	}
	for _, c := range t.childrenOf(n) {
		t.addChild(dummy, c)
	}
	t.firstChild[n] = 0
}

// sort sorts siblings (step 6).
func (t *Threads) sort() {
	for n := range t.firstChild {
		if c := t.firstChild[n]; c != 0 && t.nextSibling[c] != 0 {
			list := t.childrenOf(int32(n))
			slices.SortFunc(list, t.compare)
			t.setChildren(int32(n), list)
		}
	}
	slices.SortFunc(t.roots, t.compare)
}

// Walk reports the threads in the order of a THREAD response. It calls open and closed around each
// thread, and message with the index, from 0, of each message in a line of parents and children.
// Where a line branches, it calls open and closed around each branch.
func (t *Threads) Walk(open, closed func(), message func(i int)) {
	var pending []int32 // branches to visit; 0 for the end of one
	push := func(list []int32) {
		for _, n := range slices.Backward(list) {
			pending = append(pending, n)
		}
	}
	push(t.roots)
	for len(pending) > 0 {
		n := pending[len(pending)-1]
		pending = pending[:len(pending)-1]
		if n == 0 {
			closed()
			continue
		}
		open()
		pending = append(pending, 0)
		split := n // the node whose children branch
		if !t.isDummy(n) {
			message(int(n) - 1)
			for c := t.firstChild[n]; c != 0 && t.nextSibling[c] == 0; c = t.firstChild[c] {
				message(int(c) - 1)
				split = c
			}
		}
		push(t.childrenOf(split))
	}
}
