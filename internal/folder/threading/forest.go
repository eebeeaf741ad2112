// SPDX-License-Identifier: Apache-2.0

package threading

// forest are nodes that hang under each other, numbered from 1. Whatever their
// shape, each change and each question takes logarithmic time on average: paths
// to the root are kept in splay trees (Sleator and Tarjan's link-cut trees).
type forest struct {
	parent []int32 // of each node in the forest; 0 for none
	splay  []splayNode
}

// splayNode is a node of the tree of a path, ordered by depth. up of a tree's
// root is the node that the path hangs under.
type splayNode struct{ up, left, right int32 }

func newForest() forest { return forest{make([]int32, 1), make([]splayNode, 1)} }

// add makes a node that hangs under nothing.
func (f *forest) add() int32 {
	f.parent = append(f.parent, 0)
	f.splay = append(f.splay, splayNode{})
	return int32(len(f.parent) - 1)
}

// link hangs c, which hangs under nothing, under p, unless p is c or hangs under
// it.
func (f *forest) link(c, p int32) {
	if f.root(p) == c {
		return
	}
	f.expose(c)
	f.splay[c].up = p
	f.parent[c] = p
}

// cut takes c off what it hangs under.
func (f *forest) cut(c int32) {
	if f.parent[c] == 0 {
		return
	}
	f.expose(c)
	f.splay[f.splay[c].left].up = 0
	f.splay[c].left = 0
	f.parent[c] = 0
}

// root returns what n hangs under at last: itself, if under nothing.
func (f *forest) root(n int32) int32 {
	f.expose(n)
	for f.splay[n].left != 0 {
		n = f.splay[n].left
	}
	f.splayUp(n)
	return n
}

// expose makes the way from the top to n one path, and n the root of its tree.
func (f *forest) expose(n int32) {
	below := int32(0)
	for at := n; at != 0; at = f.splay[at].up {
		f.splayUp(at)
		f.splay[at].right = below
		below = at
	}
	f.splayUp(n)
}

// splayUp makes n the root of the tree of its path.
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

// isInner reports whether n is not the root of its tree.
func (f *forest) isInner(n int32) bool {
	up := f.splay[n].up
	return up != 0 && (f.splay[up].left == n || f.splay[up].right == n)
}

// rotate puts n in the place of the node above it in its tree.
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
