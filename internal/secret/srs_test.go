// SPDX-License-Identifier: Apache-2.0

package secret

import (
	"strings"
	"testing"
	"time"
)

func TestSRS(t *testing.T) {
	k, other := srsKey(t, "1"), srsKey(t, "2")
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	for _, local := range []string{"ann", "Ann.Lee", "a=b+c", "SRS0=x=y=z=w"} {
		path, ok := k.SRS(7, "here.test", local, "example.com", now)
		if !ok || !IsSRS(path) || len(path) > 64 {
			t.Fatalf("%s: %q, %v", local, path, ok)
		}
		for days, want := range map[int]bool{0: true, 21: true, 22: false, -1: false, srsDayModulus - 1: false} {
			at := now.AddDate(0, 0, days)
			got, domain, ok := k.ParseSRS(7, "here.test", path, at)
			if ok != want || ok && (got != local || domain != "example.com") {
				t.Errorf("%s after %d days: %s@%s, %v", path, days, got, domain, ok)
			}
		}
		if got, _, ok := k.ParseSRS(7, "here.test", strings.ToLower(path), now); !ok || got != strings.ToLower(local) {
			t.Errorf("in lower case: %q, %v", got, ok)
		}
		if _, _, ok := k.ParseSRS(7, "there.test", path, now); ok {
			t.Error("another domain takes it")
		}
		if _, _, ok := k.ParseSRS(7, "HERE.test", path, now); !ok {
			t.Error("the domain in capitals does not take it")
		}
		if _, _, ok := k.ParseSRS(8, "here.test", path, now); ok {
			t.Error("another account takes it")
		}
		for _, by := range []string{"", "there.test"} {
			earlier := srsPrefix + k.signSRS(by, path[16:18], "example.com", local) + path[15:]
			if got, _, ok := k.ParseSRS(7, "there.test", earlier, now); !ok || got != local {
				t.Errorf("of an earlier release: %q is %q", earlier, got)
			}
		}
		if _, _, ok := other.ParseSRS(7, "here.test", path, now); ok {
			t.Error("another key takes it")
		}
		for i := range path {
			forged := path[:i] + "q" + path[i+1:]
			if _, _, ok := k.ParseSRS(7, "here.test", forged, now); ok && !strings.EqualFold(forged, path) {
				t.Errorf("forged: %q", forged)
			}
		}
	}
	for _, local := range []string{`"a b"`, "ä", "a@b", strings.Repeat("l", 40), ""} {
		if path, ok := k.SRS(7, "here.test", local, "example.com", now); ok && local != "" {
			t.Errorf("%s: %q", local, path)
		}
	}
	for _, bad := range []string{"", "SRS0=", "SRS0====", "SRS0=aaaaaaaaaa=aa=d", "SRS0=aaaaaaaaaa=é=d=l", "ann"} {
		if _, _, ok := k.ParseSRS(7, "here.test", bad, now); ok {
			t.Errorf("took %q", bad)
		}
	}
}

func FuzzParseSRS(f *testing.F) {
	k, now := srsKey(f, "1"), time.Unix(1_790_000_000, 0)
	path, _ := k.SRS(7, "here.test", "ann", "example.com", now)
	f.Add(path)
	f.Add("SRS0=aaaaaaaaaa=aa=example.com=ann")
	f.Fuzz(func(t *testing.T, text string) {
		local, domain, ok := k.ParseSRS(7, "here.test", text, now)
		if again, _ := k.SRS(7, "here.test", local, domain, now); ok && len(again) != len(text) {
			t.Errorf("%q is %s@%s", text, local, domain)
		}
	})
}

func srsKey(t testing.TB, digit string) *Key {
	t.Helper()
	k, err := ParseKey(strings.Repeat(digit, 64))
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func TestStoredPath(t *testing.T) {
	k, other := srsKey(t, "1"), srsKey(t, "2")
	path := k.StoredSRS(7, "here.test", 1<<62)
	if !IsSRS(path) || len(path) > 64 {
		t.Fatal(path)
	}
	for _, p := range []string{path, strings.ToLower(path), strings.ToUpper(path)} {
		if id, ok := k.ParseStoredSRS(7, "HERE.test", p); !ok || id != 1<<62 {
			t.Errorf("%s: %d, %v", p, id, ok)
		}
	}
	for what, ok := range map[string]bool{
		"another account": second(k.ParseStoredSRS(8, "here.test", path)), "another domain": second(k.ParseStoredSRS(7, "there.test", path)),
		"another key": second(other.ParseStoredSRS(7, "here.test", path)), "cut off": second(k.ParseStoredSRS(7, "here.test", path[:len(path)-1])),
		"nothing": second(k.ParseStoredSRS(7, "here.test", "SRS0=p=")), "bad text": second(k.ParseStoredSRS(7, "here.test", "SRS0=p=é"+path[9:])),
	} {
		if ok {
			t.Errorf("%s is taken", what)
		}
	}
	for i := len("SRS0=p="); i < len(path); i++ {
		if forged := path[:i] + "q" + path[i+1:]; forged != path && second(k.ParseStoredSRS(7, "here.test", forged)) {
			t.Errorf("forged: %q", forged)
		}
	}
	if _, _, ok := k.ParseSRS(7, "here.test", path, time.Now()); ok {
		t.Error("it is taken for a path with an address")
	}
}

func second(_ int64, ok bool) bool { return ok }
