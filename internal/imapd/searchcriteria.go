// SPDX-License-Identifier: Apache-2.0

package imapd

import (
	"time"

	"github.com/mailstead/mailstead/internal/folder"
	"github.com/mailstead/mailstead/internal/imapd/wire"
)

// criteriaBuilder converts a search program to criteria of package folder.
type criteriaBuilder struct {
	session   *session
	remaining int  // messages that its sets may still name
	hasModSeq bool // whether it contains MODSEQ
}

func (p *criteriaBuilder) criterion(k *wire.SearchKey) (folder.Criterion, error) {
	c := folder.Criterion{Not: k.Not, Header: k.Header, Text: k.Text, Num: k.Num, Time: k.Date}
	switch k.Op {
	case wire.SearchAll:
		c.Test = folder.MatchAll
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
			c.Children = append(c.Children, child)
		}
	case wire.SearchNumbers:
		return p.numberCriterion(c, k.Numbers)
	case wire.SearchFlag:
		c.Test, c.Flags = folder.HasFlags, folder.Flags(k.Flag)
	case wire.SearchKeyword:
		c.Test = folder.HasKeyword
	case wire.SearchHeader:
		c.Test = folder.HasHeader
	case wire.SearchEnvelope:
		c.Test = folder.InEnvelope
	case wire.SearchBody:
		c.Test = folder.InBody
	case wire.SearchText:
		c.Test = folder.InText
	case wire.SearchLarger:
		c.Test = folder.Larger
	case wire.SearchSmaller:
		c.Test = folder.Smaller
	case wire.SearchModSeq:
		c.Test = folder.ModSeqAtLeast
		p.hasModSeq = true
	case wire.SearchSaveDateSupported: // always supported
		c.Test = folder.MatchAll
	case wire.SearchOlder, wire.SearchYounger:
		return p.ageCriterion(c, k.Op), nil
	case wire.SearchEmailID, wire.SearchThreadID:
		return p.objectCriterion(c, k)
	default:
		return p.dateCriterion(c, k.Op)
	}
	return c, nil
}

func (p *criteriaBuilder) numberCriterion(c folder.Criterion, n wire.NumSet) (folder.Criterion, error) {
	c.Test = folder.HasUID
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
		c.Test, c.UIDs = folder.MatchAll, nil
	}
	if p.remaining -= len(c.UIDs); p.remaining < 0 {
		return c, no(wire.CodeLimit, "The search names too many messages.")
	}
	return c, nil
}

// ageCriterion builds the tests of an age in whole seconds: a message of exactly that age is both
// older and younger (RFC 5032 §4).
func (p *criteriaBuilder) ageCriterion(c folder.Criterion, op wire.SearchOp) folder.Criterion {
	c.Test, c.Time = folder.DateSince, p.session.Now().Truncate(time.Second).Add(-time.Duration(c.Num)*time.Second)
	if op == wire.SearchOlder {
		c.Test, c.Time = folder.DateBefore, c.Time.Add(time.Second)
	}
	return c
}

// dateCriterion builds the tests of a date. ON means since the day and before the next.
func (p *criteriaBuilder) dateCriterion(c folder.Criterion, op wire.SearchOp) (folder.Criterion, error) {
	before, since := folder.DateBefore, folder.DateSince
	switch op {
	case wire.SearchSentBefore, wire.SearchSentOn, wire.SearchSentSince:
		before, since = folder.SentBefore, folder.SentSince
	case wire.SearchSavedBefore, wire.SearchSavedOn, wire.SearchSavedSince:
		before, since = folder.SavedBefore, folder.SavedSince
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
		return folder.Criterion{Test: folder.And, Not: c.Not, Children: []folder.Criterion{from, to}}, nil
	default:
		return c, bad("This server does not offer that search key.")
	}
	return c, nil
}
