// SPDX-License-Identifier: Apache-2.0

package imapd

import (
	"time"

	"github.com/mailstead/mailstead/internal/folder"
	"github.com/mailstead/mailstead/internal/folder/search"
	"github.com/mailstead/mailstead/internal/imapd/wire"
)

// criteriaBuilder converts a search program to criteria of package folder.
type criteriaBuilder struct {
	session   *session
	remaining int  // messages that its sets may still name
	hasModSeq bool // whether it contains MODSEQ
}

func (p *criteriaBuilder) criterion(k *wire.SearchKey) (search.Criterion, error) {
	c := search.Criterion{Not: k.Not, Header: k.Header, Text: k.Text, Num: k.Num, Time: k.Date}
	switch k.Op {
	case wire.SearchAll:
		c.Test = search.MatchAll
	case wire.SearchAnd, wire.SearchOr:
		c.Test = search.And
		if k.Op == wire.SearchOr {
			c.Test = search.Or
		}
		for i := range k.Keys {
			child, err := p.criterion(&k.Keys[i])
			if err != nil {
				return c, err
			}
			c.Children = append(c.Children, child)
		}
	case wire.SearchNumbers:
		return p.numberCriterion(c, k.Numbers)
	case wire.SearchFlag:
		c.Test, c.Flags = search.HasFlags, folder.Flags(k.Flag)
	case wire.SearchKeyword:
		c.Test = search.HasKeyword
	case wire.SearchHeader:
		c.Test = search.HasHeader
	case wire.SearchEnvelope:
		c.Test = search.InEnvelope
	case wire.SearchBody:
		c.Test = search.InBody
	case wire.SearchText:
		c.Test = search.InText
	case wire.SearchLarger:
		c.Test = search.Larger
	case wire.SearchSmaller:
		c.Test = search.Smaller
	case wire.SearchModSeq:
		c.Test = search.ModSeqAtLeast
		p.hasModSeq = true
	case wire.SearchSaveDateSupported: // always supported
		c.Test = search.MatchAll
	case wire.SearchOlder, wire.SearchYounger:
		return p.ageCriterion(c, k.Op), nil
	case wire.SearchEmailID, wire.SearchThreadID:
		return p.objectCriterion(c, k)
	default:
		return p.dateCriterion(c, k.Op)
	}
	return c, nil
}

func (p *criteriaBuilder) numberCriterion(c search.Criterion, n wire.NumSet) (search.Criterion, error) {
	c.Test = search.HasUID
	switch {
	case n.Saved:
		c.UIDs = p.session.view.Resolve(p.session.savedUIDs, true)
	case p.session.view.Len() > 0:
		// A sequence number without a message is no error here; it just matches nothing.
		last := uint32(p.session.view.Len())
		if n.UID {
			last = p.session.view.UID(last)
		}
		c.UIDs = p.session.view.Resolve(folderRanges(n.Set.Resolve(last)), n.UID)
	}
	if len(c.UIDs) == p.session.view.Len() {
		c.Test, c.UIDs = search.MatchAll, nil
	}
	if p.remaining -= len(c.UIDs); p.remaining < 0 {
		return c, no(wire.CodeLimit, "The search names too many messages.")
	}
	return c, nil
}

// ageCriterion builds the tests of an age in whole seconds: a message of exactly that age is both
// older and younger (RFC 5032 §4).
func (p *criteriaBuilder) ageCriterion(c search.Criterion, op wire.SearchOp) search.Criterion {
	c.Test, c.Time = search.DateSince, p.session.Now().Truncate(time.Second).Add(-time.Duration(c.Num)*time.Second)
	if op == wire.SearchOlder {
		c.Test, c.Time = search.DateBefore, c.Time.Add(time.Second)
	}
	return c
}

// dateCriterion builds the tests of a date. ON means since the day and before the next.
func (p *criteriaBuilder) dateCriterion(c search.Criterion, op wire.SearchOp) (search.Criterion, error) {
	before, since := search.DateBefore, search.DateSince
	switch op {
	case wire.SearchSentBefore, wire.SearchSentOn, wire.SearchSentSince:
		before, since = search.SentBefore, search.SentSince
	case wire.SearchSavedBefore, wire.SearchSavedOn, wire.SearchSavedSince:
		before, since = search.SavedBefore, search.SavedSince
	}
	switch op {
	case wire.SearchBefore, wire.SearchSentBefore, wire.SearchSavedBefore:
		c.Test = before
	case wire.SearchSince, wire.SearchSentSince, wire.SearchSavedSince:
		c.Test = since
	case wire.SearchOn, wire.SearchSentOn, wire.SearchSavedOn:
		from, to := c, c
		from.Not, to.Not = false, false
		to.Time = c.Time.AddDate(0, 0, 1)
		from.Test, to.Test = since, before
		return search.Criterion{Test: search.And, Not: c.Not, Children: []search.Criterion{from, to}}, nil
	default:
		return c, bad("This server does not offer that search key.")
	}
	return c, nil
}
