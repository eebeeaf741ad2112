// SPDX-License-Identifier: Apache-2.0

package folder

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
		_, uids, err := h.Append(h.ctx(), h.box, Inbox, h.upload(mail("a", ""), 0), h.upload(mail("c", ""), 0), h.upload(mail("b", ""), 0))
		h.must(err)
		v := h.view(Inbox)
		h.must(v.Sort(h.ctx(), uids, []SortBy{{Field: BySubject, Reverse: true}, {Field: BySubject}}))
		if want := numbers(2, 3, 1); !equal(uids, want) {
			t.Errorf("sorted %v, want %v", uids, want)
		}
	})
}
