// SPDX-License-Identifier: Apache-2.0

package imapd

import (
	"cmp"
	"errors"
	"slices"

	"github.com/mailstead/mailstead/internal/folder"
	"github.com/mailstead/mailstead/internal/folder/search"
	"github.com/mailstead/mailstead/internal/imapd/wire"
)

// search handles SEARCH, with the results of RFC 4731 if RETURN is given.
func (s *session) search(cmd *wire.Search) (wire.Code, error) {
	cmd.SearchOptions = s.searchOptions(cmd.SearchOptions)
	uids, highest, err := s.searchAndSort(&cmd.SearchOptions, &cmd.Key, nil)
	if !hasResult(err) {
		return "", err
	}
	var found wire.Set
	for _, uid := range uids {
		if !cmd.UID {
			uid = s.view.Seq(uid)
		}
		found.Add(uid)
	}
	switch {
	case cmd.Return == wire.ReturnSave: // SAVE alone suppresses the response (RFC 5182 §2.1)
	case cmd.Extended:
		s.w.ESearch(s.tag, cmd.UID, cmd.SearchOptions, found, highest)
	default:
		s.w.SearchResult(found, highest)
	}
	return "", err
}

// hasResult reports whether a search has a result. If some messages could not be read, the client
// gets the others, and then a NO.
func hasResult(err error) bool { return err == nil || errors.Is(err, search.ErrIncomplete) }

// maxSearchUIDs limits the number of messages that the sets of one search program may name
// together, and so their memory.
const maxSearchUIDs = 4_000_000

// searchAndSort does the common part of SEARCH and SORT. It searches for messages, sorts their UIDs
// unless order is nil, and saves them if requested. It also returns the mod-sequence to report, 0
// for none. If err is not nil there may still be a result: see hasResult.
func (s *session) searchAndSort(o *wire.SearchOptions, key *wire.SearchKey, order func([]uint32) error) (uids []uint32, highest uint64, err error) {
	uids, withModSeq, err := s.runSearch(key)
	if hasResult(err) && order != nil {
		err = cmp.Or(order(uids), err)
	}
	if hasResult(err) && withModSeq {
		var failed error
		highest, failed = s.highestModSeq(reportedUIDs(o, uids))
		err = cmp.Or(failed, err)
	}
	if o.Return&wire.ReturnSave != 0 {
		err = s.saveResult(reportedUIDs(o, uids), err)
	}
	return uids, highest, err
}

// runSearch returns the ascending UIDs of the messages for which a search program holds, and
// whether the program contains MODSEQ.
func (s *session) runSearch(key *wire.SearchKey) (uids []uint32, withModSeq bool, err error) {
	p := criteriaBuilder{session: s, remaining: maxSearchUIDs}
	criterion, err := p.criterion(key)
	if err != nil {
		return nil, false, err
	}
	if p.hasModSeq {
		s.enableCondStore()
	}
	uids, err = s.searchFolder(criterion)
	return uids, p.hasModSeq, err
}

// reportedUIDs returns the UIDs that a response names or counts (RFC 9394 §3.2), in the order of
// the response.
func reportedUIDs(o *wire.SearchOptions, uids []uint32) []uint32 {
	if some := o.Return &^ wire.ReturnSave; some == 0 || some&(wire.ReturnAll|wire.ReturnCount) != 0 || len(uids) == 0 {
		return uids
	}
	var list []uint32
	if o.Return&wire.ReturnMin != 0 {
		list = append(list, uids[0])
	}
	if o.Return&wire.ReturnMax != 0 {
		list = append(list, uids[len(uids)-1])
	}
	if o.Return&wire.ReturnPartial != 0 {
		lo, hi := o.Partial.Bounds(uint64(len(uids)))
		list = append(list, uids[lo:hi]...)
	}
	return list
}

// highestModSeq returns the highest mod-sequence of the messages that a response names (RFC 7162
// §3.1.10).
func (s *session) highestModSeq(uids []uint32) (uint64, error) {
	var most uint64
	err := s.view.Fetch(s.ctx(), slices.Sorted(slices.Values(uids)), 0, func(r *folder.MessageRow) error {
		most = max(most, r.ModSeq)
		return nil
	})
	return most, err
}
