// SPDX-License-Identifier: Apache-2.0

package folder

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"
)

// Test says what a Criterion tests.
type Test uint8

// The tests, with the fields of Criterion that each uses.
const (
	All         Test = iota // every message
	And                     // Of: all of them hold
	Or                      // Of: one of them holds
	InUIDs                  // UIDs
	HasFlags                // Flags: all of these, Recent too
	HasKeyword              // Text
	HasHeader               // Header, Text: a field of that name contains the text
	InEnvelope              // Header, Text: what the ENVELOPE has of that field contains the text
	InBody                  // Text
	InText                  // Text: in header or body
	DateBefore              // Time: the internal date is earlier
	DateSince               // Time: it is that or later
	SentBefore              // Time: the day in the Date header, in its own zone, is earlier
	SentSince               // Time: the day is that or later
	SavedBefore             // Time
	SavedSince              // Time
	Larger                  // Num: more bytes
	Smaller                 // Num: fewer bytes
	ModSeqFrom              // Num: the mod-sequence is that or higher
)

// Criterion is a node of a search program. Texts match whatever their case,
// anywhere in the decoded text (RFC 3501 §6.4.4); the empty text is in every
// text, so a header that is there has it.
type Criterion struct {
	Test   Test
	Not    bool
	Of     []Criterion
	UIDs   []uint32 // rising
	Flags  Flags
	Header string
	Text   string // UTF-8
	Time   time.Time
	Num    uint64
}

// truth is what is known about a criterion as long as not all is read.
type truth uint8

const (
	no truth = iota
	maybe
	yes
)

func is(b bool) truth {
	if b {
		return yes
	}
	return no
}

// criterion is a Criterion made ready.
type criterion struct {
	*Criterion
	of     []criterion
	words  map[uint32]bool // the sets of keywords with the one looked for
	others bool            // messages may have sets that are in no table
	needle needle
	look   look
	place  int // of Header in an ENVELOPE; -1 if it isn't there
	sought int // what of the index tells about it; -1 for nothing
}

// candidate is a message with what was read of it so far.
type candidate struct {
	entry
	recent bool
	row    *Row   // nil as long as only the view was looked at
	bytes  *texts // nil as long as the bytes were not

	index *Narrowed // nil if none was asked
	at    int       // in index.Messages; -1 if it isn't there
}

// ErrUnread is of a search that could not read all that it had to.
var ErrUnread = errors.New("some messages could not be read")

// toldUnread is how many of them the log names, of one search.
const toldUnread = 100

// Search returns the UIDs of the session's messages for which c holds, rising.
// It looks at no more than it needs: at few messages if the index tells which,
// at rows only if neither the view nor the index decides, at bytes only if the
// rows do not. It ends early with ctx. What can't be read and may be meant is
// left out: then the others come with ErrUnread.
//
// Before it reads the first body it calls acquire, unless that is nil, with no
// transaction open; after the last it calls release. An error of acquire ends the search.
func (v *View) Search(ctx context.Context, c Criterion, acquire func(context.Context) (release func(), err error)) ([]uint32, error) {
	ready := v.prepare(&c)
	few, known, err := v.fromIndex(ctx, &ready)
	if err != nil {
		return nil, err
	}
	var hits, open []uint32
	if known {
		var m candidate
		for _, e := range v.snap.pick(few) {
			v.sift(&ready, &m, e, &hits, &open)
		}
	} else if err := v.lookThrough(ctx, &ready, &hits, &open); err != nil {
		return nil, err
	}
	if len(open) == 0 {
		return hits, nil
	}
	var index *Narrowed
	if !known {
		if index, open, err = v.narrow(ctx, &ready, open, &hits); err != nil {
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
	want := ready.wants()
	if want == WantBlob|WantStructure {
		want |= WantBytes // nothing else can tell, so each will be read
	}
	err = v.Fetch(ctx, open, want, func(r *Row) error {
		e, _ := v.snap.find(r.UID)
		m := candidate{entry: e, recent: r.Flags&Recent != 0, row: r, index: index, at: index.find(r.Message)}
		found := ready.judge(&m)
		if found == maybe {
			var why, err error
			if found, why, err = v.judgeBytes(ctx, &ready, &m, buf); err != nil {
				return err
			}
			if found == maybe {
				unread++
				v.tellUnread(unread, r, why)
			}
		}
		if found == yes {
			hits = append(hits, r.UID)
		}
		return ctx.Err()
	})
	if err != nil {
		return nil, err
	}
	slices.Sort(hits)
	if unread > 0 {
		return hits, ErrUnread
	}
	return hits, nil
}

// tellUnread names the n-th message of a search that could not be read in the log.
func (v *View) tellUnread(n int, r *Row, why error) {
	switch log := v.store.Log.With("folder", v.shared.id, "uid", r.UID, "message", r.Message); {
	case n < toldUnread:
		log.Error("searching a message", "error", why)
	case n == toldUnread:
		log.Error("searching a message; more may follow that are not named", "error", why)
	}
}

// sift puts a message with those for which the criterion holds, or with those
// for which the view does not tell. m is what it is looked at in.
func (v *View) sift(c *criterion, m *candidate, e entry, hits, open *[]uint32) {
	m.entry, m.recent = e, v.isRecent(e.uid)
	switch c.judge(m) {
	case yes:
		*hits = append(*hits, e.uid)
	case maybe:
		*open = append(*open, e.uid)
	}
}

// lookThrough sifts all messages, unless ctx ends.
func (v *View) lookThrough(ctx context.Context, c *criterion, hits, open *[]uint32) error {
	var m candidate
	for _, slot := range v.snap.slots {
		if err := ctx.Err(); err != nil {
			return err
		}
		switch c.judgeChunk(slot) {
		case yes:
			for i := range slot.len() {
				*hits = append(*hits, slot.uid(i))
			}
		case maybe:
			if c.Test == HasFlags && c.Flags&Recent == 0 { // as most searches are: nothing else need be unpacked
				for i := range slot.len() {
					if has := Flags(slot.flags.at(i))&c.Flags == c.Flags; has != c.Not {
						*hits = append(*hits, slot.uid(i))
					}
				}
				continue
			}
			for i := range slot.len() {
				v.sift(c, &m, slot.entry(i), hits, open)
			}
		}
	}
	return nil
}

func (v *View) prepare(c *Criterion) criterion {
	ready := criterion{Criterion: c, place: -1, sought: -1}
	for i := range c.Of {
		ready.of = append(ready.of, v.prepare(&c.Of[i]))
	}
	switch c.Test {
	case HasKeyword:
		ready.words, ready.others = v.shared.words.having(c.Text), v.shared.words.isFull()
	case HasHeader, InEnvelope, InBody, InText:
		ready.needle = newNeedle(c.Text)
		if c.Header != "" && c.Text != "" {
			ready.place = envelopePlace(strings.ToLower(c.Header))
		}
	}
	return ready
}

// wants returns what must be read of the messages that the view leaves open.
func (c *criterion) wants() (want Want) {
	switch c.Test {
	case DateBefore, DateSince, SavedBefore, SavedSince:
		want = WantDates
	case HasKeyword:
		if c.others {
			want = WantDates // with any row the keywords are read
		}
	case SentBefore, SentSince:
		want = WantEnvelope
	case InEnvelope:
		if want = WantEnvelope; c.place < 0 {
			want = WantBlob | WantStructure
		}
	case HasHeader, InBody, InText:
		if want = WantBlob | WantStructure; c.Test == HasHeader && c.place >= 0 {
			want |= WantEnvelope
		}
	}
	for i := range c.of {
		want |= c.of[i].wants()
	}
	return want
}

// readsBodies reports whether the criterion may have to look through bodies.
func (c *criterion) readsBodies() bool {
	return c.Test == InBody || c.Test == InText || slices.ContainsFunc(c.of, func(o criterion) bool { return o.readsBodies() })
}

// judge says whether the criterion holds, as far as what was read tells.
func (c *criterion) judge(m *candidate) truth {
	t := c.test(m)
	if c.Not && t != maybe {
		return yes - t
	}
	return t
}

func (c *criterion) test(m *candidate) truth {
	switch c.Test {
	case All:
		return yes
	case And:
		all := yes
		for i := range c.of {
			if all = min(all, c.of[i].judge(m)); all == no {
				break
			}
		}
		return all
	case Or:
		any := no
		for i := range c.of {
			if any = max(any, c.of[i].judge(m)); any == yes {
				break
			}
		}
		return any
	case InUIDs:
		_, found := slices.BinarySearch(c.UIDs, m.uid)
		return is(found)
	case HasFlags:
		flags := m.flags
		if m.recent {
			flags |= Recent
		}
		return is(flags&c.Flags == c.Flags)
	case HasKeyword:
		switch {
		case m.words != otherWords:
			return is(c.words[m.words])
		case m.row == nil:
			return maybe
		}
		return is(slices.ContainsFunc(m.row.Keywords, func(w string) bool { return strings.EqualFold(w, c.Text) }))
	case Larger:
		return is(uint64(m.size) > c.Num)
	case Smaller:
		return is(uint64(m.size) < c.Num)
	case ModSeqFrom:
		return is(m.modseq >= c.Num)
	}
	if m.index.lacks(c.sought, m.at) {
		return no
	}
	if m.row == nil {
		return maybe
	}
	return c.testRow(m)
}

// testRow judges what takes the message's row, or its bytes.
func (c *criterion) testRow(m *candidate) truth {
	switch c.Test {
	case DateBefore:
		return is(m.row.Date.Before(c.Time))
	case DateSince:
		return is(!m.row.Date.Before(c.Time))
	case SavedBefore:
		return is(m.row.SavedAt.Before(c.Time))
	case SavedSince:
		return is(!m.row.SavedAt.Before(c.Time))
	case SentBefore, SentSince:
		day, ok := sentDay(m.row.Envelope)
		return is(ok && day.Before(c.Time) == (c.Test == SentBefore))
	case InEnvelope:
		if c.place >= 0 {
			return is(c.needle.in(envelopeText(m.row.Envelope, c.place)))
		}
	case HasHeader:
		// What the ENVELOPE has need not be read; what it has not, the header may.
		addresses := c.place >= 2 && c.place <= 7
		if c.place >= 0 && (!addresses || c.needle.plain()) && c.needle.in(envelopeText(m.row.Envelope, c.place)) {
			return yes
		}
	}
	if m.bytes == nil {
		return maybe
	}
	return m.bytes.has(c)
}
