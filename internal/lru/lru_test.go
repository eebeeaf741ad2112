// SPDX-License-Identifier: Apache-2.0

package lru

import "testing"

func TestMap(t *testing.T) {
	m := Map[string, int]{Max: 2}
	if _, _, ok := m.Oldest(); ok || m.Get("a") != nil || m.Len() != 0 {
		t.Fatal("the zero Map is not empty")
	}
	m.Put("a", 1)
	m.Put("b", 2)
	m.Peek("a")
	if key, v, ok := m.Oldest(); !ok || key != "a" || *v != 1 {
		t.Fatalf("the oldest is %q, want a", key)
	}
	m.Get("a")
	if v, created := m.GetOrCreate("c"); !created || *v != 0 || m.Peek("b") != nil || m.Len() != 2 {
		t.Fatal("b was not dropped")
	}
	m.Put("a", 3)
	if m.Len() != 2 || *m.Get("a") != 3 {
		t.Fatal("a was not replaced")
	}
	m.Delete("a")
	m.Delete("a")
	if m.Len() != 1 || m.Peek("c") == nil {
		t.Fatal("a was not deleted")
	}
	m.Clear()
	if m.Len() != 0 || m.Peek("c") != nil {
		t.Fatal("entries remain")
	}
	unlimited := Map[int, int]{}
	for i := range 100 {
		unlimited.Put(i, i)
	}
	if unlimited.Len() != 100 {
		t.Fatalf("%d entries, want 100", unlimited.Len())
	}
}
