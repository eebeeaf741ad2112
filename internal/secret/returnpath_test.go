// SPDX-License-Identifier: Apache-2.0

package secret

import (
	"math"
	"strings"
	"testing"
)

func TestReturnPath(t *testing.T) {
	k := testKey(t, 1)
	for _, id := range []int64{0, 1, 42, math.MaxInt64, math.MinInt64, -1} {
		for _, n := range []int{0, 1, 49, MaxRecipient} {
			local := k.ReturnPath(id, n)
			if len(local) != 34 || !IsReturnOrUnsubscribePath(local) || local != strings.ToLower(local) {
				t.Fatalf("local part %q", local)
			}
			for _, s := range []string{local, strings.ToUpper(local)} {
				gotID, gotN, ok := k.ParseReturnPath(s)
				if !ok || gotID != id || gotN != n {
					t.Fatalf("%q gives %d %d %v, want %d %d", s, gotID, gotN, ok, id, n)
				}
			}
			if _, _, ok := testKey(t, 2).ParseReturnPath(local); ok {
				t.Fatal("another key took it")
			}
		}
	}
}

// An unsubscribe address is not a return path, and a return path is not an unsubscribe address.
func TestUnsubscribePath(t *testing.T) {
	k := testKey(t, 1)
	local := k.UnsubscribePath(42, 7)
	if id, n, ok := k.ParseUnsubscribePath(strings.ToUpper(local)); !ok || id != 42 || n != 7 || !IsReturnOrUnsubscribePath(local) {
		t.Errorf("%q gives %d %d %v", local, id, n, ok)
	}
	if _, _, ok := k.ParseReturnPath(local); ok {
		t.Error("it counts as a return path")
	}
	if _, _, ok := k.ParseUnsubscribePath(k.ReturnPath(42, 7)); ok {
		t.Error("a return path unsubscribes")
	}
	if _, _, ok := testKey(t, 2).ParseUnsubscribePath(local); ok {
		t.Error("another key took it")
	}
}

func TestReturnPathForged(t *testing.T) {
	k := testKey(t, 1)
	local := k.ReturnPath(7, 3)
	for i := range len(local) {
		for _, c := range "abz27-+\x00" {
			bad := local[:i] + string(c) + local[i+1:]
			if _, _, ok := k.ParseReturnPath(bad); ok && bad != local {
				t.Fatalf("%q went through", bad)
			}
		}
	}
	for _, bad := range []string{"", "b-", "b", local[:33], local + "a", "c" + local[1:], strings.Repeat("b-", 17), "b-" + strings.Repeat("İ", 16), "b-" + strings.Repeat("\u212a", 10) + "aa"} {
		if _, _, ok := k.ParseReturnPath(bad); ok {
			t.Errorf("%q went through", bad)
		}
	}
}

func FuzzReturnPath(f *testing.F) {
	k := testKey(f, 1)
	f.Add("b-aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa")
	f.Add(k.ReturnPath(1, 1))
	f.Add(strings.ToUpper(k.ReturnPath(math.MaxInt64, MaxRecipient)))
	f.Add("alice")
	f.Add("b-" + strings.Repeat("\u212a", 10) + "aa")
	f.Add("b-\r\n")
	f.Fuzz(func(t *testing.T, local string) {
		id, n, ok := k.ParseReturnPath(local)
		if ok && !strings.EqualFold(k.ReturnPath(id, n), local) {
			t.Fatalf("%q was taken for %d %d", local, id, n)
		}
	})
}
