// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// wholeSet reads a set and nothing behind it.
func wholeSet(s string) (Set, error) {
	set, n, err := parseSet([]byte(s))
	if err == nil && n != len(s) {
		err = ErrInvalidSet
	}
	return set, err
}

func TestParseSet(t *testing.T) {
	tests := []struct{ in, written, resolved string }{
		{"1", "1", "1"},
		{"*", "*", "9"},
		{"*:*", "*", "9"},
		{"5:*", "5:*", "5:9"},
		{"*:5", "5:*", "5:9"},
		{"12:*", "12:*", "9:12"},
		{"3:1", "1:3", "1:3"},
		{"1,2,3,4", "1:4", "1:4"},
		{"2:4,9,12:*", "2:4,9,12:*", "2:4,9:12"},
		{"9,1:3,2:5,6", "9,1:3,2:6", "1:6,9"},
		{"4294967295,1", "4294967295,1", "1,4294967295"},
		{"1:4294967295,7", "1:4294967295,7", "1:4294967295"},
	}
	for _, tt := range tests {
		s, err := wholeSet(tt.in)
		if err != nil || s.String() != tt.written || s.Resolve(9).String() != tt.resolved {
			t.Errorf("%s: written %s, resolved %s, %v", tt.in, s, s.Resolve(9), err)
		}
	}
	for _, in := range []string{"", "0", "a", "1:", ":1", "1,", ",1", "1::2", "1-2", "4294967296", "99999999999999999999", "1 ", "**"} {
		if s, err := wholeSet(in); err == nil {
			t.Errorf("%q is taken as %s", in, s)
		}
	}
	if s, _ := wholeSet("1:*,*"); len(s.Resolve(0)) != 0 || !s.HasStar() {
		t.Errorf("in an empty folder: %s", s.Resolve(0))
	}
}

func TestSetAgainstMap(t *testing.T) {
	number := rapid.OneOf(rapid.Uint32Range(1, 40), rapid.Uint32Range(math.MaxUint32-3, math.MaxUint32))
	numbers := rapid.SliceOf(number)
	rapid.Check(t, func(t *rapid.T) {
		a, b := numbers.Draw(t, "a"), numbers.Draw(t, "b")
		inA, inB := map[uint32]bool{}, map[uint32]bool{}
		var s Set
		for _, n := range a {
			s.Add(n)
			inA[n] = true
		}
		for _, n := range b {
			inB[n] = true
		}
		u := SetOf(b...)
		check := func(what string, s Set, in func(n uint32) bool) {
			if !s.normal() {
				t.Fatalf("%s %v is not normal", what, s)
			}
			var count uint64
			for n := range s.All() {
				if !in(n) {
					t.Fatalf("%s %v holds %d", what, s, n)
				}
				count++
			}
			for _, n := range slices.Concat(a, b) {
				if s.Contains(n) != in(n) {
					t.Fatalf("%s %v: Contains(%d)", what, s, n)
				}
			}
			if count != s.Count() {
				t.Fatalf("%s %v: Count %d, All %d", what, s, s.Count(), count)
			}
			if len(s) > 0 {
				back, err := wholeSet(s.String())
				if err != nil || !slices.Equal(back, s) {
					t.Fatalf("%s %v reads back as %v, %v", what, s, back, err)
				}
			}
		}
		check("Add", s, func(n uint32) bool { return inA[n] })
		check("SetOf", u, func(n uint32) bool { return inB[n] })
		if !slices.Equal(SetOf(a...), s) || SetOf(a...).String() != s.String() {
			t.Fatalf("SetOf %v, Add %v", SetOf(a...), s)
		}
	})
}

func TestPageOf(t *testing.T) {
	found := SetOf(1, 2, 3, 7, 9, 10)
	tests := []struct {
		page Page
		want string
	}{
		{Page{1, 2, false}, "1:2"},
		{Page{3, 5, false}, "3,7,9"},
		{Page{6, 100, false}, "10"},
		{Page{7, 100, false}, ""},
		{Page{1, 2, true}, "9:10"},
		{Page{3, 100, true}, "1:3,7"},
		{Page{7, 9, true}, ""},
	}
	for _, tt := range tests {
		if got := tt.page.Slice(found).String(); got != tt.want {
			t.Errorf("%+v of %s is %s, want %s", tt.page, found, got, tt.want)
		}
	}
}

func FuzzSet(f *testing.F) {
	for _, s := range []string{"1", "*", "1:*", "*:4,7", "2:4,9,12:*", "4294967295:1", "1,2,3", "0", "1,,2"} {
		f.Add(s, uint32(9))
	}
	f.Fuzz(func(t *testing.T, in string, last uint32) {
		s, err := wholeSet(in)
		if err != nil {
			return
		}
		back, err := wholeSet(s.String())
		if err != nil || !slices.Equal(back, s) {
			t.Fatalf("%q: %v reads back as %v, %v", in, s, back, err)
		}
		if r := s.Resolve(last); !r.normal() {
			t.Fatalf("%q: %v is not normal", in, r)
		}
	})
}
