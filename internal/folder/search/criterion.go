// SPDX-License-Identifier: Apache-2.0

package search

import (
	"slices"
	"strings"
	"time"

	"github.com/mailstead/mailstead/internal/folder"
	"github.com/mailstead/mailstead/internal/folder/snapshot"
	"github.com/mailstead/mailstead/internal/message"
)

// CriterionKind is what a Criterion tests.
type CriterionKind uint8

// The tests, with the fields of Criterion that each one uses.
const (
	MatchAll      CriterionKind = iota // every message
	And                                // all of Children hold
	Or                                 // one of Children holds
	HasUID                             // UIDs
	HasFlags                           // Flags: all of these, Recent too
	HasKeyword                         // Text
	HasHeader                          // Header, Text: a field with that name contains the text
	InEnvelope                         // Header, Text: the ENVELOPE's text of that field contains the text
	InBody                             // Text
	InText                             // Text: in header or body
	DateBefore                         // Time: the internal date is earlier
	DateSince                          // Time: the internal date is that or later
	SentBefore                         // Time: the day in the Date header, in its own zone, is earlier
	SentSince                          // Time: the day is that or later
	SavedBefore                        // Time
	SavedSince                         // Time
	Larger                             // Num: more bytes
	Smaller                            // Num: fewer bytes
	ModSeqAtLeast                      // Num: the mod-sequence is that or higher
)

// Criterion is a node of a search expression. Texts match in any case, anywhere in the decoded text
// (RFC 3501 §6.4.4). The empty text matches any text, so it matches if the header exists.
type Criterion struct {
	Test     CriterionKind
	Not      bool
	Children []Criterion
	UIDs     []uint32 // ascending
	Flags    folder.Flags
	Header   string
	Text     string // UTF-8
	Time     time.Time
	Num      uint64
}

// matchResult is what is known about a criterion before all data is read.
type matchResult uint8

const (
	matchNo matchResult = iota
	matchUnknown
	matchYes
)

func matchOf(b bool) matchResult {
	if b {
		return matchYes
	}
	return matchNo
}

// compiledCriterion is a Criterion prepared for matching.
type compiledCriterion struct {
	*Criterion
	children     []compiledCriterion
	keywordSets  map[uint32]bool // the sets that contain the keyword
	hasOverflow  bool            // whether messages may have sets that the table lacks
	needle       needle
	contentMatch contentMatch
	field        message.EnvelopeField // Header, if it can be searched there
	termIndex    int                   // index of its term in the index query; -1 for none
}

// candidate is a message with the data read so far.
type candidate struct {
	snapshot.Entry
	recent  bool
	row     *folder.MessageRow // nil until the row is read
	content *textScanner       // nil until the bytes are read

	prefilter *PrefilterResult // nil if the index was not asked
	position  int              // in prefilter.Messages; -1 if it isn't there
}

// compile prepares a criterion for a folder with these keywords.
func compile(c *Criterion, keywords *snapshot.KeywordTable) compiledCriterion {
	ready := compiledCriterion{Criterion: c, field: message.NotInEnvelope, termIndex: -1}
	for i := range c.Children {
		ready.children = append(ready.children, compile(&c.Children[i], keywords))
	}
	switch c.Test {
	case HasKeyword:
		ready.keywordSets, ready.hasOverflow = keywords.SetsWith(c.Text), keywords.IsFull()
	case HasHeader, InEnvelope, InBody, InText:
		ready.needle = newNeedle(c.Text)
		if c.Header != "" && c.Text != "" {
			ready.field = searchableField([]byte(c.Header))
		}
	}
	return ready
}

// fields returns the fields to read of the messages that the view leaves undecided.
func (c *compiledCriterion) fields() (want folder.FetchFields) {
	switch c.Test {
	case DateBefore, DateSince, SavedBefore, SavedSince:
		want = folder.FetchDates
	case HasKeyword:
		if c.hasOverflow {
			want = folder.FetchDates // keywords are read with any row
		}
	case SentBefore, SentSince:
		want = folder.FetchEnvelope
	case InEnvelope:
		if want = folder.FetchEnvelope; c.field < 0 {
			want = folder.FetchBlobID | folder.FetchStructure
		}
	case HasHeader, InBody, InText:
		if want = folder.FetchBlobID | folder.FetchStructure; c.Test == HasHeader && c.field >= 0 {
			want |= folder.FetchEnvelope
		}
	}
	for i := range c.children {
		want |= c.children[i].fields()
	}
	return want
}

// readsBodies reports whether the criterion may have to search bodies.
func (c *compiledCriterion) readsBodies() bool {
	return c.Test == InBody || c.Test == InText || slices.ContainsFunc(c.children, func(o compiledCriterion) bool { return o.readsBodies() })
}

// match returns whether the criterion holds, as far as the data read so far decides it.
func (c *compiledCriterion) match(m *candidate) matchResult { return c.negate(c.matchTest(m)) }

// negate inverts the result of the test if the criterion is negated.
func (c *compiledCriterion) negate(t matchResult) matchResult {
	if c.Not {
		return matchYes - t // which leaves matchUnknown
	}
	return t
}

func (c *compiledCriterion) matchTest(m *candidate) matchResult {
	switch c.Test {
	case MatchAll:
		return matchYes
	case And:
		all := matchYes
		for i := range c.children {
			if all = min(all, c.children[i].match(m)); all == matchNo {
				break
			}
		}
		return all
	case Or:
		any := matchNo
		for i := range c.children {
			if any = max(any, c.children[i].match(m)); any == matchYes {
				break
			}
		}
		return any
	case HasUID:
		_, found := slices.BinarySearch(c.UIDs, m.UID)
		return matchOf(found)
	case HasFlags:
		flags := m.Flags
		if m.recent {
			flags |= folder.Recent
		}
		return matchOf(flags&c.Flags == c.Flags)
	case HasKeyword:
		switch {
		case m.Keywords != snapshot.OverflowKeywords:
			return matchOf(c.keywordSets[m.Keywords])
		case m.row == nil:
			return matchUnknown
		}
		return matchOf(slices.ContainsFunc(m.row.Keywords, func(w string) bool { return strings.EqualFold(w, c.Text) }))
	case Larger:
		return matchOf(uint64(m.Size) > c.Num)
	case Smaller:
		return matchOf(uint64(m.Size) < c.Num)
	case ModSeqAtLeast:
		return matchOf(m.ModSeq >= c.Num)
	}
	if m.prefilter.lacks(c.termIndex, m.position) {
		return matchNo
	}
	if m.row == nil {
		return matchUnknown
	}
	return c.matchRow(m)
}

// matchRow tests criteria that need the message's row or its bytes.
func (c *compiledCriterion) matchRow(m *candidate) matchResult {
	switch c.Test {
	case DateBefore:
		return matchOf(m.row.Date.Before(c.Time))
	case DateSince:
		return matchOf(!m.row.Date.Before(c.Time))
	case SavedBefore:
		return matchOf(m.row.SavedAt.Before(c.Time))
	case SavedSince:
		return matchOf(!m.row.SavedAt.Before(c.Time))
	case SentBefore, SentSince:
		day, ok := sentDay(m.row.Envelope)
		return matchOf(ok && day.Before(c.Time) == (c.Test == SentBefore))
	case InEnvelope:
		if c.field >= 0 {
			return matchOf(c.needle.isIn(message.EnvelopeText(m.row.Envelope, c.field)))
		}
	case HasHeader:
		// Text found in the ENVELOPE decides; the header may still have text that the ENVELOPE
		// lacks.
		if c.field >= 0 && (!c.field.HasAddresses() || c.needle.isPlain()) && c.needle.isIn(message.EnvelopeText(m.row.Envelope, c.field)) {
			return matchYes
		}
	}
	if m.content == nil {
		return matchUnknown
	}
	return m.content.match(c)
}

// searchableField returns the ENVELOPE field with a name. It returns message.NotInEnvelope if
// another field's text may be there: Sender and Reply-To equal From where the message has none. The
// ENVELOPE has less than the header: only the first of several equal fields, and addresses without
// their original form.
func searchableField(name []byte) message.EnvelopeField {
	k := message.EnvelopeFieldOf(name)
	if k == message.EnvelopeSender || k == message.EnvelopeReplyTo {
		return message.NotInEnvelope
	}
	return k
}

// sentDay returns the day in the Date field, in its own zone, as midnight UTC.
func sentDay(envelope []byte) (time.Time, bool) {
	sent, ok := message.ParseDate(message.EnvelopeText(envelope, message.EnvelopeDate))
	if !ok {
		return sent, false
	}
	y, m, d := sent.Date()
	return time.Date(y, m, d, 0, 0, 0, 0, time.UTC), true
}

// matchChunk returns whether the criterion holds for all messages of a chunk, for none, or whether
// each must be tested.
func (c *compiledCriterion) matchChunk(s snapshot.Slot) matchResult {
	return c.negate(c.matchChunkTest(s))
}

func (c *compiledCriterion) matchChunkTest(s snapshot.Slot) matchResult {
	switch c.Test {
	case MatchAll:
		return matchYes
	case And:
		all := matchYes
		for i := range c.children {
			all = min(all, c.children[i].matchChunk(s))
		}
		return all
	case Or:
		any := matchNo
		for i := range c.children {
			any = max(any, c.children[i].matchChunk(s))
		}
		return any
	case HasUID:
		at, found := slices.BinarySearch(c.UIDs, s.UID(0))
		if !found && (at == len(c.UIDs) || c.UIDs[at] > s.UID(s.Len()-1)) {
			return matchNo
		}
	case HasFlags:
		switch {
		case c.Flags&folder.Recent != 0: // only each session knows that
		case s.AllFlags&c.Flags == c.Flags:
			return matchYes
		case s.AnyFlags&c.Flags != c.Flags:
			return matchNo
		}
	case HasKeyword:
		if set, all := s.KeywordSet(); all && set != snapshot.OverflowKeywords {
			return matchOf(c.keywordSets[set])
		}
	case ModSeqAtLeast:
		if s.MaxModSeq < c.Num {
			return matchNo
		}
	}
	return matchUnknown
}
