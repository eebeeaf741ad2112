// SPDX-License-Identifier: Apache-2.0

package imapd

import (
	"github.com/mailstead/mailstead/internal/folder"
	"github.com/mailstead/mailstead/internal/imapd/wire"
)

// maxSearchNumbers is how many messages the sets of one search program may
// name together, which bounds the memory that they take.
const maxSearchNumbers = 4_000_000

// search is SEARCH, with the results of RFC 4731 if RETURN is given.
func (s *session) search(cmd *wire.Search) (wire.Code, error) {
	if cmd.Return&(wire.ReturnSave|wire.ReturnPartial) != 0 {
		return "", bad("This server does not offer that RETURN option.")
	}
	p := program{session: s, left: maxSearchNumbers}
	criterion, err := p.criterion(&cmd.Key)
	if err != nil {
		return "", err
	}
	if p.modSeq {
		s.wantModSeqs()
	}
	uids, err := s.view.Search(s.ctx(), criterion)
	if err != nil {
		return "", err
	}
	var highest uint64
	if p.modSeq {
		if highest, err = s.highestModSeq(cmd, uids); err != nil {
			return "", err
		}
	}
	var found wire.Set
	for _, uid := range uids {
		if !cmd.UID {
			uid = s.view.Seq(uid)
		}
		found.Add(uid)
	}
	if cmd.Extended {
		s.w.ESearch(s.tag, cmd.UID, cmd.SearchOptions, found, highest)
	} else {
		s.w.SearchResult(found, highest)
	}
	return "", nil
}

// highestModSeq is the mod-sequence to tell: that of the messages which the
// answer names, if it names but the first and the last (RFC 4731 §3.2).
func (s *session) highestModSeq(cmd *wire.Search, uids []uint32) (uint64, error) {
	const ends = wire.ReturnMin | wire.ReturnMax
	if len(uids) > 1 && cmd.Extended && cmd.Return&^ends == 0 {
		switch cmd.Return {
		case wire.ReturnMin:
			uids = uids[:1]
		case wire.ReturnMax:
			uids = uids[len(uids)-1:]
		default:
			uids = []uint32{uids[0], uids[len(uids)-1]}
		}
	}
	var most uint64
	err := s.view.Fetch(s.ctx(), uids, 0, func(r *folder.Row) error {
		most = max(most, r.ModSeq)
		return nil
	})
	return most, err
}

// program turns a search program into the folder's words.
type program struct {
	*session
	left   int  // messages that its sets may still name
	modSeq bool // it has MODSEQ
}

func (p *program) criterion(k *wire.SearchKey) (folder.Criterion, error) {
	c := folder.Criterion{Not: k.Not, Header: k.Header, Text: k.Text, Num: k.Num, Time: k.Date}
	switch k.Op {
	case wire.SearchAll:
		c.Test = folder.All
	case wire.SearchAnd, wire.SearchOr:
		c.Test = folder.And
		if k.Op == wire.SearchOr {
			c.Test = folder.Or
		}
		for i := range k.Keys {
			child, err := p.criterion(&k.Keys[i])
			if err != nil {
				return c, err
			}
			c.Of = append(c.Of, child)
		}
	case wire.SearchNumbers:
		return p.numbers(c, k.Numbers)
	case wire.SearchFlag:
		c.Test, c.Flags = folder.HasFlags, folder.Flags(k.Flag)
	case wire.SearchKeyword:
		c.Test = folder.HasKeyword
	case wire.SearchHeader:
		c.Test = folder.HasHeader
	case wire.SearchBody:
		c.Test = folder.InBody
	case wire.SearchText:
		c.Test = folder.InText
	case wire.SearchLarger:
		c.Test = folder.Larger
	case wire.SearchSmaller:
		c.Test = folder.Smaller
	case wire.SearchModSeq:
		c.Test = folder.ModSeqFrom
		p.modSeq = true
	default:
		return p.days(c, k.Op)
	}
	return c, nil
}

func (p *program) numbers(c folder.Criterion, n wire.NumSet) (folder.Criterion, error) {
	var err error
	c.Test = folder.InUIDs
	if c.UIDs, err = p.resolve(n); err != nil {
		return c, err
	}
	if len(c.UIDs) == p.view.Len() {
		c.Test, c.UIDs = folder.All, nil
	}
	if p.left -= len(c.UIDs); p.left < 0 {
		return c, no(wire.CodeLimit, "The search names too many messages.")
	}
	return c, nil
}

// days makes the tests of a date. ON is since the day and before the next.
func (p *program) days(c folder.Criterion, op wire.SearchOp) (folder.Criterion, error) {
	switch op {
	case wire.SearchBefore:
		c.Test = folder.DateBefore
	case wire.SearchSince:
		c.Test = folder.DateSince
	case wire.SearchSentBefore:
		c.Test = folder.SentBefore
	case wire.SearchSentSince:
		c.Test = folder.SentSince
	case wire.SearchOn, wire.SearchSentOn:
		from, to := c, c
		from.Not, to.Not = false, false
		to.Time = c.Time.AddDate(0, 0, 1)
		from.Test, to.Test = folder.DateSince, folder.DateBefore
		if op == wire.SearchSentOn {
			from.Test, to.Test = folder.SentSince, folder.SentBefore
		}
		return folder.Criterion{Test: folder.And, Not: c.Not, Of: []folder.Criterion{from, to}}, nil
	default:
		return c, bad("This server does not offer that search key.")
	}
	return c, nil
}
