// SPDX-License-Identifier: Apache-2.0

package imapd

import (
	"github.com/mailstead/mailstead/internal/folder/search"
	"github.com/mailstead/mailstead/internal/imapd/wire"
)

// sort handles SORT (RFC 5256, RFC 5957), with the results of ESORT (RFC 5267 §3) if RETURN is
// given.
func (s *session) sort(cmd *wire.Sort) (wire.Code, error) {
	by := make([]search.SortBy, len(cmd.By))
	for i, b := range cmd.By {
		by[i] = search.SortBy{Field: sortField(b.Field), Reverse: b.Reverse}
	}
	order := func(uids []uint32) error { return search.Sort(s.ctx(), s.view, uids, by) }
	if cmd.Extended && cmd.Return&^(wire.ReturnCount|wire.ReturnSave) == 0 {
		order = nil
	}
	found, highest, err := s.searchAndSort(&cmd.SearchOptions, &cmd.Key, order)
	if !hasResult(err) {
		return "", err
	}
	if !cmd.UID {
		for i, uid := range found {
			found[i] = s.view.Seq(uid)
		}
	}
	switch {
	case cmd.Return == wire.ReturnSave:
	case cmd.Extended:
		s.w.ESort(s.tag, cmd.UID, cmd.SearchOptions, found, highest)
	default:
		s.w.SortResult(found, highest)
	}
	return "", err
}

func sortField(name string) search.SortField {
	switch name {
	case "ARRIVAL":
		return search.ByArrival
	case "SIZE":
		return search.BySize
	case "SUBJECT":
		return search.BySubject
	case "FROM":
		return search.ByFrom
	case "TO":
		return search.ByTo
	case "CC":
		return search.ByCc
	case "DISPLAYFROM":
		return search.ByDisplayFrom
	case "DISPLAYTO":
		return search.ByDisplayTo
	}
	return search.BySent
}
