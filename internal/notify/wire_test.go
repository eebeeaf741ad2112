// SPDX-License-Identifier: Apache-2.0

package notify

import (
	"math"
	"slices"
	"strings"
	"testing"
)

func TestEncodeDecode(t *testing.T) {
	var keys []Key
	for i := range int64(3000) {
		keys = append(keys, Key{Folder, i}, Key{Queue, math.MaxInt64 - i}, Key{Event, math.MinInt64 + i})
	}
	texts := encode(keys)
	var got []Key
	for _, text := range texts {
		if len(text) > maxPayload || len(text) < maxPayload-30 && text != texts[len(texts)-1] {
			t.Errorf("a text of %d bytes", len(text))
		}
		part, err := decode(text)
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, part...)
	}
	if !slices.Equal(got, keys) {
		t.Fatal("keys changed on the way")
	}
	if len(encode(nil)) != 0 {
		t.Error("no keys need no text")
	}
}

func TestDecodeRefuses(t *testing.T) {
	for _, text := range []string{"f", "f1,", ",f1", "f1,,f2", "F1", "f1 ", "f-", "fzzzzzzzzzzzzzzzzzz", "1", strings.Repeat("f1,", 3000) + "f1"} {
		if keys, err := decode(text); err == nil {
			t.Errorf("%.20q gives %v", text, keys)
		}
	}
}

func FuzzDecode(f *testing.F) {
	for _, text := range []string{"", "f1", "f1,q0,e-zz", "z1y2p0ij32e8e7", "f+1", "f1,,"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		keys, err := decode(text)
		if err != nil {
			return
		}
		var again []Key
		for _, text := range encode(keys) {
			part, err := decode(text)
			if err != nil {
				t.Fatal(err)
			}
			again = append(again, part...)
		}
		if !slices.Equal(again, keys) {
			t.Fatalf("%v became %v", keys, again)
		}
	})
}
