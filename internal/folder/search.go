// SPDX-License-Identifier: Apache-2.0

package folder

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/mailstead/mailstead/internal/folder/snapshot"
	"github.com/mailstead/mailstead/internal/message"
)

// SearchTest is what a Criterion tests.
type SearchTest uint8

// The tests, with the fields of Criterion that each one uses.
const (
	MatchAll      SearchTest = iota // every message
	And                             // all of Of hold
	Or                              // one of Of holds
	HasUID                          // UIDs
	HasFlags                        // Flags: all of these, Recent too
	HasKeyword                      // Text
	HasHeader                       // Header, Text: a field with that name contains the text
	InEnvelope                      // Header, Text: the ENVELOPE's text of that field contains the text
	InBody                          // Text
	InText                          // Text: in header or body
	DateBefore                      // Time: the internal date is earlier
	DateSince                       // Time: the internal date is that or later
	SentBefore                      // Time: the day in the Date header, in its own zone, is earlier
	SentSince                       // Time: the day is that or later
	SavedBefore                     // Time
	SavedSince                      // Time
	Larger                          // Num: more bytes
	Smaller                         // Num: fewer bytes
	ModSeqAtLeast                   // Num: the mod-sequence is that or higher
)

// Criterion is a node of a search expression. Texts match in any case, anywhere in the decoded text
// (RFC 3501 §6.4.4). The empty text matches any text, so it matches if the header exists.
type Criterion struct {
	Test     SearchTest
	Not      bool
	Children []Criterion
	UIDs     []uint32 // ascending
	Flags    Flags
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
	row     *MessageRow  // nil until the row is read
	content *textScanner // nil until the bytes are read

	prefilter *PrefilterResult // nil if the index was not asked
	position  int              // in prefilter.Messages; -1 if it isn't there
}

// ErrUnreadable is returned by a search that could not read all messages that it had to.
var ErrUnreadable = errors.New("some messages could not be read")

// maxLoggedUnreadable is how many unreadable messages of one search are logged.
const maxLoggedUnreadable = 100

// Search returns the ascending UIDs of the session's messages for which c holds. It examines only
// the messages that the index names, if it can. It reads rows only if neither the view nor the
// index decides, and bytes only if the rows don't. It stops when ctx ends. It leaves out unreadable
// messages that may match, and then returns the other UIDs with ErrUnreadable.
//
// Before it reads the first body it calls acquire, unless that is nil, with no transaction open.
// After the last body it calls release. An error from acquire ends the search.
func (v *View) Search(ctx context.Context, c Criterion, acquire func(context.Context) (release func(), err error)) ([]uint32, error) {
	ready := v.compile(&c)
	few, known, err := v.candidatesFromIndex(ctx, &ready)
	if err != nil {
		return nil, err
	}
	var hits, open []uint32
	if known {
		var m candidate
		for _, e := range v.snap.EachOf(few) {
			v.classify(&ready, &m, e, &hits, &open)
		}
	} else if err := v.scanSnapshot(ctx, &ready, &hits, &open); err != nil {
		return nil, err
	}
	if len(open) == 0 {
		return hits, nil
	}
	var index *PrefilterResult
	if !known {
		if index, open, err = v.prefilter(ctx, &ready, open, &hits); err != nil {
			return nil, err
		}
	}
	if acquire != nil && len(open) > 0 && ready.readsBodies() {
		release, err := acquire(ctx)
		if err != nil {
			return nil, err
		}
		defer release()
	}
	buf, unread := make([]byte, textBuffer), 0
	want := ready.fields()
	if want == FetchBlobID|FetchStructure {
		want |= FetchContent // only the bytes can decide, so each will be read
	}
	err = v.Fetch(ctx, open, want, func(r *MessageRow) error {
		e, _ := v.snap.Find(r.UID)
		m := candidate{Entry: e, recent: r.Flags&Recent != 0, row: r, prefilter: index, position: index.position(r.Message)}
		found := ready.match(&m)
		if found == matchUnknown {
			var why, err error
			if found, why, err = v.testContent(ctx, &ready, &m, buf); err != nil {
				return err
			}
			if found == matchUnknown {
				unread++
				v.logUnreadable(unread, r, why)
			}
		}
		if found == matchYes {
			hits = append(hits, r.UID)
		}
		return ctx.Err()
	})
	if err != nil {
		return nil, err
	}
	slices.Sort(hits)
	if unread > 0 {
		return hits, ErrUnreadable
	}
	return hits, nil
}

// logUnreadable logs the n-th message of a search that could not be read.
func (v *View) logUnreadable(n int, r *MessageRow, why error) {
	switch log := v.store.Log.With("folder", v.shared.id, "uid", r.UID, "message", r.Message); {
	case n < maxLoggedUnreadable:
		log.Error("searching a message", "error", why)
	case n == maxLoggedUnreadable:
		log.Error("searching a message; more may follow that are not named", "error", why)
	}
}

// classify appends a message to hits if the criterion holds, or to open if the view does not
// decide. m is scratch space.
func (v *View) classify(c *compiledCriterion, m *candidate, e snapshot.Entry, hits, open *[]uint32) {
	m.Entry, m.recent = e, v.isRecent(e.UID)
	switch c.match(m) {
	case matchYes:
		*hits = append(*hits, e.UID)
	case matchUnknown:
		*open = append(*open, e.UID)
	}
}

// scanSnapshot classifies all messages, unless ctx ends.
func (v *View) scanSnapshot(ctx context.Context, c *compiledCriterion, hits, open *[]uint32) error {
	var m candidate
	for _, slot := range v.snap.Slots() {
		if err := ctx.Err(); err != nil {
			return err
		}
		switch c.matchChunk(slot) {
		case matchYes:
			for i := range slot.Len() {
				*hits = append(*hits, slot.UID(i))
			}
		case matchUnknown:
			if c.Test == HasFlags && c.Flags&Recent == 0 { // the most common search: nothing else need be unpacked
				for i := range slot.Len() {
					if has := slot.Flags(i)&c.Flags == c.Flags; has != c.Not {
						*hits = append(*hits, slot.UID(i))
					}
				}
				continue
			}
			for i := range slot.Len() {
				v.classify(c, &m, slot.Entry(i), hits, open)
			}
		}
	}
	return nil
}

func (v *View) compile(c *Criterion) compiledCriterion {
	ready := compiledCriterion{Criterion: c, field: message.NotInEnvelope, termIndex: -1}
	for i := range c.Children {
		ready.children = append(ready.children, v.compile(&c.Children[i]))
	}
	switch c.Test {
	case HasKeyword:
		ready.keywordSets, ready.hasOverflow = v.shared.keywords.SetsWith(c.Text), v.shared.keywords.IsFull()
	case HasHeader, InEnvelope, InBody, InText:
		ready.needle = newNeedle(c.Text)
		if c.Header != "" && c.Text != "" {
			ready.field = searchableField([]byte(c.Header))
		}
	}
	return ready
}

// fields returns the fields to read of the messages that the view leaves undecided.
func (c *compiledCriterion) fields() (want FetchFields) {
	switch c.Test {
	case DateBefore, DateSince, SavedBefore, SavedSince:
		want = FetchDates
	case HasKeyword:
		if c.hasOverflow {
			want = FetchDates // keywords are read with any row
		}
	case SentBefore, SentSince:
		want = FetchEnvelope
	case InEnvelope:
		if want = FetchEnvelope; c.field < 0 {
			want = FetchBlobID | FetchStructure
		}
	case HasHeader, InBody, InText:
		if want = FetchBlobID | FetchStructure; c.Test == HasHeader && c.field >= 0 {
			want |= FetchEnvelope
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
func (c *compiledCriterion) match(m *candidate) matchResult {
	t := c.matchTest(m)
	if c.Not && t != matchUnknown {
		return matchYes - t
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
			flags |= Recent
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
