// SPDX-License-Identifier: Apache-2.0

package threading

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
)

// show formats threads like THREAD, with numbers from 1.
func show(t *Threads) string {
	var b strings.Builder
	after := false // whether the last item was a number
	t.Walk(func() {
		if after {
			b.WriteByte(' ')
		}
		after = false
		b.WriteByte('(')
	}, func() {
		after = false
		b.WriteByte(')')
	}, func(i int) {
		if after {
			b.WriteByte(' ')
		}
		after = true
		fmt.Fprint(&b, i+1)
	})
	return b.String()
}

func byReferences(messages []Message) *Threads {
	r := NewReferencesBuilder()
	for _, m := range messages {
		r.Add(m)
	}
	return r.Threads()
}

func refs(ids ...int64) []int64 { return ids }

func TestReferences(t *testing.T) {
	const x, y = 1001, 1002 // Message-IDs that no message has
	for _, c := range []struct {
		name     string
		messages []Message
		want     string
	}{
		{"none", nil, ""},
		{"alone", []Message{{ID: 1}, {}, {}}, "(1)(2)(3)"},
		{"of the RFC", []Message{ // (3 6 (4 23)(44 7 96)), renumbered
			{ID: 1, Sent: 1}, {ID: 2, References: refs(1), Sent: 2}, {ID: 3, References: refs(1, 2), Sent: 3}, {ID: 4, References: refs(1, 2, 3), Sent: 4},
			{ID: 5, References: refs(1, 2), Sent: 5}, {ID: 6, References: refs(1, 2, 5), Sent: 6}, {ID: 7, References: refs(6), Sent: 7}},
			"(1 2 (3 4)(5 6 7))"},
		{"parent that is not there", []Message{{ID: 1, References: refs(x)}, {ID: 2, References: refs(x)}}, "((1)(2))"},
		{"one child of it", []Message{{ID: 1, References: refs(x)}, {ID: 2, References: refs(y)}}, "(1)(2)"},
		{"gaps within", []Message{{ID: 1}, {ID: 2, References: refs(1, x)}, {ID: 3, References: refs(1, x, y)}}, "(1 (2)(3))"},
		{"gaps at the top", []Message{{ID: 1, References: refs(x, y)}, {ID: 2, References: refs(x)}}, "((1)(2))"},
		{"child before its parent", []Message{{ID: 2, References: refs(1), Sent: 9}, {ID: 1, Sent: 1}}, "(2 1)"},
		{"same Message-ID", []Message{{ID: 1}, {ID: 1}, {ID: 2, References: refs(1)}}, "(1 3)(2)"},
		{"itself", []Message{{ID: 1, References: refs(1)}}, "(1)"},
		{"each other", []Message{{ID: 1, References: refs(2)}, {ID: 2, References: refs(1)}}, "(2 1)"},
		{"a circle in one", []Message{{ID: 1, References: refs(2, 3, 2, 1, 3)}, {ID: 2}, {ID: 3}}, "(2)(3 1)"}, // 3 states that it refers to nothing
		{"truncated before", []Message{{ID: 3, References: refs(1, 2)}, {ID: 2, References: refs(1, x)}, {ID: 1}}, "(3 2 1)"},
		{"no references after all", []Message{{ID: 3, References: refs(1, 2)}, {ID: 2}, {ID: 1}}, "(2 1)(3)"},
		{"siblings by date", []Message{{ID: 1, Sent: 5}, {ID: 2, References: refs(1), Sent: 9}, {ID: 3, References: refs(1), Sent: 7}, {ID: 4, References: refs(1), Sent: 7}}, "(1 (3)(4)(2))"},
		{"threads by date", []Message{{ID: 1, Sent: 5}, {ID: 2, Sent: 3}, {ID: 3, References: refs(x), Sent: 9}, {ID: 4, References: refs(x), Sent: 4}}, "(2)((4)(3))(1)"},

		{"reply by subject", []Message{{Subject: 1, Sent: 2, IsReply: true}, {Subject: 1, Sent: 1}}, "(2 1)"},
		{"reply sent first", []Message{{Subject: 1, Sent: 1, IsReply: true}, {Subject: 1, Sent: 2}}, "(2 1)"},
		{"same subject", []Message{{Subject: 1}, {Subject: 1}, {Subject: 1}}, "((1)(2)(3))"},
		{"replies alone", []Message{{Subject: 1, IsReply: true}, {Subject: 1, IsReply: true}}, "((1)(2))"},
		{"a first one among replies", []Message{{Subject: 1, IsReply: true}, {Subject: 1, IsReply: true}, {Subject: 1}}, "(3 (1)(2))"},
		{"two first ones and a reply", []Message{{Subject: 1}, {Subject: 1, Sent: 1}, {Subject: 1, Sent: 2, IsReply: true}}, "((1)(2)(3))"},
		{"empty subjects", []Message{{}, {IsReply: true}}, "(1)(2)"},
		{"two dummies", []Message{{References: refs(x), Subject: 1}, {References: refs(x)}, {References: refs(y), Subject: 1}, {References: refs(y)}}, "((1)(2)(3)(4))"},
		{"message into a dummy", []Message{{Subject: 1}, {References: refs(x), Subject: 1, Sent: 1}, {References: refs(x), Sent: 2}}, "((1)(2)(3))"},
		{"reply below what it has", []Message{{ID: 1, Subject: 1}, {References: refs(1), Subject: 1, IsReply: true, Sent: 1}, {Subject: 1, IsReply: true, Sent: 2}}, "(1 (2)(3))"},
	} {
		if got := show(byReferences(c.messages)); got != c.want {
			t.Errorf("%s: got %s, want %s", c.name, got, c.want)
		}
	}
}

func TestOrderedSubject(t *testing.T) {
	for _, c := range []struct {
		messages []Message
		want     string
	}{
		{nil, ""},
		{[]Message{{Subject: 1, Sent: 3}, {Subject: 2, Sent: 2}, {Subject: 1, Sent: 1}, {Subject: 1, Sent: 4}}, "(3 (1)(4))(2)"},
		{[]Message{{Subject: 1}, {Subject: 1}}, "(1 2)"},
		{[]Message{{Sent: 2}, {Subject: 1, Sent: 1}, {Sent: 3}}, "(2)(1 3)"},
	} {
		if got := show(ByOrderedSubject(c.messages)); got != c.want {
			t.Errorf("got %s, want %s", got, c.want)
		}
	}
}

// walkedForest does what a forest does, and walks up to find a root.
type walkedForest []int32 // parents

func (f walkedForest) root(n int32) int32 {
	for f[n] != 0 {
		n = f[n]
	}
	return n
}

func (f walkedForest) link(c, p int32) {
	if f.root(p) != c {
		f[c] = p
	}
}

// TestForest compares the forest with one that walks.
func TestForest(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		f := newForest()
		n := 2 + rnd.IntN(40)
		plain := make(walkedForest, n+1)
		for range n {
			f.add()
		}
		for range 300 {
			a, b := int32(1+rnd.IntN(n)), int32(1+rnd.IntN(n))
			top := plain.root(b)
			switch {
			case rnd.IntN(4) == 0:
				f.cut(a)
				plain[a] = 0
			case plain[a] == 0:
				f.link(a, b)
				plain.link(a, b)
			case f.root(b) != top:
				t.Fatalf("%d is under %d, not %d", b, f.root(b), top)
			}
			for i := range plain {
				if f.parent[i] != plain[i] {
					t.Fatalf("%d hangs under %d, not %d", i, f.parent[i], plain[i])
				}
			}
		}
	}
}

// hostile returns folders that would be slow to thread by walking up or down.
func hostile(n int) map[string][]Message {
	all := map[string][]Message{}
	add := func(name string, m Message) { all[name] = append(all[name], m) }
	for i := range int64(n) {
		id := i + 1
		add("chain", Message{ID: id, References: refs(i), Sent: i})
		add("backwards", Message{ID: int64(n) - i, References: refs(int64(n) - i - 1), Sent: -i})
		add("circle", Message{ID: id, References: refs((i+1)%int64(n) + 1)})
		add("wide", Message{ID: id, References: refs(1 << 40)})
		add("same subject", Message{Subject: 1, Sent: -i})
		add("comb", Message{ID: id, References: refs(i, -id), Sent: i})
		long := make([]int64, 0, 100)
		for j := max(0, i-100); j < i; j++ {
			long = append(long, j+1)
		}
		add("long references", Message{ID: id, References: long})
		half := int64(n) / 2
		if i < half { // pairs, which are then linked under the deepest node one by one
			add("pairs", Message{ID: 2*id + 1, References: refs(2 * id)})
		} else {
			k := i - half + 1
			add("pairs", Message{ID: 2 * k, References: refs(2*k - 1)})
		}
		add("cut in the middle", Message{ID: id, References: refs(id+1, id+2, int64(n)+id)})
	}
	return all
}

func TestHostile(t *testing.T) {
	const n = 100_000
	for name, messages := range hostile(n) {
		for _, threads := range []*Threads{byReferences(messages), ByOrderedSubject(messages)} {
			seen, depth := make([]bool, n), 0
			threads.Walk(func() { depth++ }, func() { depth-- }, func(i int) {
				if seen[i] || depth == 0 {
					t.Fatalf("%s: message %d comes twice, or outside", name, i)
				}
				seen[i] = true
			})
			for i := range seen {
				if !seen[i] {
					t.Fatalf("%s: message %d is missing", name, i)
				}
			}
			if depth != 0 {
				t.Errorf("%s: parentheses do not match", name)
			}
		}
	}
}

func BenchmarkReferences(b *testing.B) {
	for name, messages := range hostile(100_000) {
		b.Run(strings.ReplaceAll(name, " ", "_"), func(b *testing.B) {
			for b.Loop() {
				byReferences(messages)
			}
		})
	}
}

// BenchmarkForest links 100,000 messages, each under the last one, as any sender can make a folder
// do. It is why the forest doesn't simply walk.
func BenchmarkForest(b *testing.B) {
	const n = 100_000
	b.Run("link-cut", func(b *testing.B) {
		for b.Loop() {
			f := newForest()
			f.add()
			for i := int32(2); i <= n; i++ {
				f.link(f.add(), i-1)
			}
		}
	})
	b.Run("walked", func(b *testing.B) {
		for b.Loop() {
			f := make(walkedForest, n+1)
			for i := int32(2); i <= n; i++ {
				f.link(i, i-1)
			}
		}
	})
}

// FuzzReferences interprets every four bytes as a message.
func FuzzReferences(f *testing.F) {
	f.Add([]byte("\x01\x00\x10\x01\x02\x01\x20\x11\x03\x12\x30\x12"))
	f.Fuzz(func(t *testing.T, in []byte) {
		var messages []Message
		for ; len(in) >= 4; in = in[4:] {
			m := Message{ID: int64(in[0] & 15), Sent: int64(in[2] & 3), Subject: uint64(in[3] >> 1 & 3), IsReply: in[3]&1 != 0}
			for _, id := range []byte{in[1] >> 4, in[1] & 15, in[2] >> 4} {
				if id != 0 {
					m.References = append(m.References, int64(id))
				}
			}
			messages = append(messages, m)
		}
		for _, threads := range []*Threads{byReferences(messages), ByOrderedSubject(messages)} {
			text := show(threads)
			n := len(strings.FieldsFunc(text, func(r rune) bool { return r == ' ' || r == '(' || r == ')' }))
			if n != len(messages) || strings.Count(text, "(") != strings.Count(text, ")") || strings.Contains(text, "()") {
				t.Fatalf("%d messages: %s", len(messages), text)
			}
		}
	})
}
