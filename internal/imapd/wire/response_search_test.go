// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"bytes"
	"testing"
)

// A long set goes out piece by piece, and comes out whole.
func TestWriteLongSet(t *testing.T) {
	var set Set
	for n := uint32(1); n < 40_000; n += 2 {
		set.Add(4_000_000_000 + n)
	}
	var out bytes.Buffer
	w := NewWriter(&out, &BufferPool{})
	w.Set(set)
	if err := w.Flush(); err != nil || out.String() != set.String() {
		t.Errorf("a set of %d ranges became another: %v", len(set), err)
	}
}

func TestESort(t *testing.T) {
	var out bytes.Buffer
	w := NewWriter(&out, &BufferPool{})
	for _, p := range []Page{{First: 2, Last: 3}, {First: 1, Last: 4, FromEnd: true}, {First: 9, Last: 10}} {
		w.ESort("a", true, SearchOptions{Return: ReturnAll | ReturnMin | ReturnMax | ReturnCount | ReturnPartial, Partial: p}, []uint32{7, 8, 5, 4, 6}, 99)
	}
	w.ESort("b", false, SearchOptions{Return: ReturnAll | ReturnCount}, nil, 99)
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	want := `* ESEARCH (TAG "a") UID MIN 7 MAX 6 ALL 7:8,5,4,6 COUNT 5 PARTIAL (2:3 8,5) MODSEQ 99
* ESEARCH (TAG "a") UID MIN 7 MAX 6 ALL 7:8,5,4,6 COUNT 5 PARTIAL (-1:-4 8,5,4,6) MODSEQ 99
* ESEARCH (TAG "a") UID MIN 7 MAX 6 ALL 7:8,5,4,6 COUNT 5 PARTIAL (9:10 NIL) MODSEQ 99
* ESEARCH (TAG "b") COUNT 0
`
	if got := string(bytes.ReplaceAll(out.Bytes(), []byte("\r\n"), []byte("\n"))); got != want {
		t.Errorf("got\n%s", got)
	}
}
