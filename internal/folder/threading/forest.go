// SPDX-License-Identifier: Apache-2.0

package threading

// forest is a set of trees whose nodes are numbered from 1. Each change and each query takes
// logarithmic time on average, regardless of the trees' shapes: paths to the root are splay trees
// (Sleator and Tarjan's link-cut trees).
type forest struct {
	parent []int32 // of each node in the forest; 0 for none
	splay  []splayNode
}

// splayNode is a node of the splay tree of a path, ordered by depth. up of the splay tree's root is
// the path's parent in the forest.
type splayNode struct{ up, left, right int32 }

func newForest() forest { return forest{make([]int32, 1), make([]splayNode, 1)} }

// add creates a node without a parent and returns its number.
func (f *forest) add() int32 {
	f.parent = append(f.parent, 0)
	f.splay = append(f.splay, splayNode{})
	return int32(len(f.parent) - 1)
}

// link makes p the parent of c, which has none, unless p is c or its descendant.
func (f *forest) link(c, p int32) {
	if f.root(p) == c {
		return
	}
	f.expose(c)
	f.splay[c].up = p
	f.parent[c] = p
}

// cut removes c from its parent.
func (f *forest) cut(c int32) {
	if f.parent[c] == 0 {
		return
	}
	f.expose(c)
	f.splay[f.splay[c].left].up = 0
	f.splay[c].left = 0
	f.parent[c] = 0
}

// root returns the root of the tree of n.
func (f *forest) root(n int32) int32 {
	f.expose(n)
	for f.splay[n].left != 0 {
		n = f.splay[n].left
	}
	f.splayUp(n)
	return n
}

// expose makes the path from the root to n one splay tree with n as its root.
func (f *forest) expose(n int32) {
	below := int32(0)
	for at := n; at != 0; at = f.splay[at].up {
		f.splayUp(at)
		f.splay[at].right = below
		below = at
	}
	f.splayUp(n)
}

// splayUp makes n the root of its splay tree.
func (f *forest) splayUp(n int32) {
	for f.isInner(n) {
		up := f.splay[n].up
		if f.isInner(up) {
			if (f.splay[f.splay[up].up].left == up) == (f.splay[up].left == n) {
				f.rotate(up)
			} else {
				f.rotate(n)
			}
		}
		f.rotate(n)
	}
}

// isInner reports whether n is not the root of its splay tree.
func (f *forest) isInner(n int32) bool {
	up := f.splay[n].up
	return up != 0 && (f.splay[up].left == n || f.splay[up].right == n)
}

// rotate swaps n with its parent in the splay tree.
func (f *forest) rotate(n int32) {
	s := f.splay
	up := s[n].up
	over := s[up].up
	switch up {
	case s[over].left:
		s[over].left = n
	case s[over].right:
		s[over].right = n
	}
	var moved int32
	if s[up].left == n {
		moved = s[n].right
		s[up].left, s[n].right = moved, up
	} else {
		moved = s[n].left
		s[up].right, s[n].left = moved, up
	}
	if moved != 0 {
		s[moved].up = up
	}
	s[n].up, s[up].up = over, n
}
