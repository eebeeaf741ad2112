// SPDX-License-Identifier: Apache-2.0

package search

import (
	"slices"
	"testing"
)

// Repeating a sort field allocates no more memory.
func TestSortFieldTwice(t *testing.T) {
	by := []SortBy{{Field: BySubject, Reverse: true}, {Field: BySize}}
	columns, _ := newSortColumns(append(slices.Repeat(by, 32), SortBy{Field: BySubject}), 1_000)
	var got []SortBy
	for _, c := range columns {
		got = append(got, c.SortBy)
	}
	if !slices.Equal(got, by) {
		t.Errorf("%d columns: %v", len(got), got)
	}
	each(t, func(h *fixture) {
		uids := h.append(h.upload(mail("a", "")), h.upload(mail("c", "")), h.upload(mail("b", "")))
		v := h.view()
		h.must(Sort(h.ctx(), v, uids, []SortBy{{Field: BySubject, Reverse: true}, {Field: BySubject}}))
		if want := numbers(2, 3, 1); !slices.Equal(uids, want) {
			t.Errorf("sorted %v, want %v", uids, want)
		}
	})
}
