// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"math"
	"time"
	"unicode/utf8"
)

// SearchOp says what a SearchKey tests.
type SearchOp uint8

// The tests, with the fields of SearchKey that each uses.
const (
	SearchAll               SearchOp = iota // every message
	SearchAnd                               // Keys: all of them
	SearchOr                                // Keys: one of the two
	SearchNumbers                           // Numbers
	SearchFlag                              // Flag; Recent for RECENT
	SearchKeyword                           // Text
	SearchHeader                            // Header, Text: a field with that name that contains the text
	SearchEnvelope                          // Header, Text: what the ENVELOPE has of that field contains the text
	SearchBody                              // Text: in the body
	SearchText                              // Text: in header or body
	SearchBefore                            // Date: internal date earlier than the day
	SearchOn                                // Date
	SearchSince                             // Date: the day or later
	SearchSentBefore                        // Date, of the Date header
	SearchSentOn                            // Date
	SearchSentSince                         // Date
	SearchSavedBefore                       // Date, of the save date (RFC 8514)
	SearchSavedOn                           // Date
	SearchSavedSince                        // Date
	SearchSaveDateSupported                 // whether save dates are kept
	SearchLarger                            // Num: more bytes
	SearchSmaller                           // Num: fewer bytes
	SearchOlder                             // Num: internal date this many seconds ago or earlier (RFC 5032)
	SearchYounger                           // Num: or later
	SearchModSeq                            // Num: mod-sequence at least (RFC 7162 §3.1.5)
	SearchEmailID                           // Text (RFC 8474)
	SearchThreadID                          // Text
)

// SearchKey is one node of a search program. NOT, UNSEEN and their like are
// Not on the key they negate; NEW is RECENT and not seen; FROM, SUBJECT and
// their like are SearchEnvelope with that field's name.
type SearchKey struct {
	Op      SearchOp
	Not     bool
	Flag    SystemFlags
	Keys    []SearchKey
	Numbers NumSet
	Header  string
	Text    string    // UTF-8
	Date    time.Time // midnight in UTC; only the day counts
	Num     uint64
}

// searchParser counts the keys of a search program.
type searchParser struct {
	r        *Reader
	keyCount int
}

func (r *Reader) searchProgram() (SearchKey, error) {
	p := searchParser{r: r}
	return p.parseAnd(0)
}

// parseAnd takes keys with a space between them, all of which must hold.
func (p *searchParser) parseAnd(depth int) (SearchKey, error) {
	first, err := p.parseKey(depth)
	if err != nil || p.r.peek() != ' ' {
		return first, err
	}
	all := SearchKey{Op: SearchAnd, Keys: []SearchKey{first}}
	for p.r.accept(' ') {
		k, err := p.parseKey(depth)
		if err != nil {
			return all, err
		}
		all.Keys = append(all.Keys, k)
	}
	return all, nil
}

func (p *searchParser) parseKey(depth int) (SearchKey, error) {
	r := p.r
	if p.keyCount++; p.keyCount > MaxSearchKeys {
		return SearchKey{}, overLimit("The search has too many keys.")
	}
	if depth > MaxSearchDepth {
		return SearchKey{}, overLimit("The search is nested too deep.")
	}
	switch c := r.peek(); {
	case c == '(':
		r.pos++
		k, err := p.parseAnd(depth + 1)
		if err != nil {
			return k, err
		}
		return k, r.expect(')')
	case c == '*' || c == '$' || isDigit(c):
		set, err := r.numSet(false)
		return SearchKey{Op: SearchNumbers, Numbers: set}, err
	}
	w := r.word()
	if k, ok := flagKey(w); ok {
		return k, nil
	}
	parse := p.argumentParser(w, depth)
	if parse == nil {
		return SearchKey{}, bad("There is no such search key.")
	}
	if err := r.sp(); err != nil {
		return SearchKey{}, err
	}
	return parse()
}

// flagKey returns the keys that have no argument.
func flagKey(w []byte) (SearchKey, bool) {
	flag := func(f SystemFlags) (SearchKey, bool) { return SearchKey{Op: SearchFlag, Flag: f}, true }
	not := func(f SystemFlags) (SearchKey, bool) { return SearchKey{Op: SearchFlag, Flag: f, Not: true}, true }
	switch string(w) {
	case "ALL":
		return SearchKey{Op: SearchAll}, true
	case "ANSWERED":
		return flag(Answered)
	case "DELETED":
		return flag(Deleted)
	case "DRAFT":
		return flag(Draft)
	case "FLAGGED":
		return flag(Flagged)
	case "SEEN":
		return flag(Seen)
	case "RECENT":
		return flag(Recent)
	case "UNANSWERED":
		return not(Answered)
	case "UNDELETED":
		return not(Deleted)
	case "UNDRAFT":
		return not(Draft)
	case "UNFLAGGED":
		return not(Flagged)
	case "UNSEEN":
		return not(Seen)
	case "OLD":
		return not(Recent)
	case "NEW":
		recent, _ := flag(Recent)
		unseen, _ := not(Seen)
		return SearchKey{Op: SearchAnd, Keys: []SearchKey{recent, unseen}}, true
	case "SAVEDATESUPPORTED":
		return SearchKey{Op: SearchSaveDateSupported}, true
	}
	return SearchKey{}, false
}

// argumentParser returns what reads the argument of a key that has one.
func (p *searchParser) argumentParser(w []byte, depth int) func() (SearchKey, error) {
	if op := dateOp(w); op != 0 {
		return func() (SearchKey, error) {
			t, err := p.r.date()
			return SearchKey{Op: op, Date: t}, err
		}
	}
	if op, limit := numberOp(w); op != 0 {
		return func() (SearchKey, error) {
			n, err := p.r.number(limit)
			if err == nil && n == 0 && (op == SearchOlder || op == SearchYounger) {
				err = bad("An age in a search is at least 1 second.")
			}
			return SearchKey{Op: op, Num: n}, err
		}
	}
	if op, header := textOp(w); op != 0 {
		return func() (SearchKey, error) {
			s, err := p.parseText()
			return SearchKey{Op: op, Header: header, Text: s}, err
		}
	}
	switch string(w) {
	case "NOT":
		return func() (SearchKey, error) {
			k, err := p.parseKey(depth + 1)
			k.Not = !k.Not
			return k, err
		}
	case "OR":
		return func() (SearchKey, error) { return p.parseOr(depth) }
	case "UID":
		return func() (SearchKey, error) {
			set, err := p.r.numSet(true)
			return SearchKey{Op: SearchNumbers, Numbers: set}, err
		}
	case "HEADER":
		return p.parseHeader
	case "MODSEQ":
		return p.parseModSeq
	case "KEYWORD", "UNKEYWORD":
		not := w[0] == 'U'
		return func() (SearchKey, error) {
			s, err := p.r.keyword()
			return SearchKey{Op: SearchKeyword, Text: s, Not: not}, err
		}
	case "EMAILID":
		return func() (SearchKey, error) { return p.parseObjectID(SearchEmailID) }
	case "THREADID":
		return func() (SearchKey, error) { return p.parseObjectID(SearchThreadID) }
	}
	return nil
}

func dateOp(w []byte) SearchOp {
	switch string(w) {
	case "BEFORE":
		return SearchBefore
	case "ON":
		return SearchOn
	case "SINCE":
		return SearchSince
	case "SENTBEFORE":
		return SearchSentBefore
	case "SENTON":
		return SearchSentOn
	case "SENTSINCE":
		return SearchSentSince
	case "SAVEDBEFORE":
		return SearchSavedBefore
	case "SAVEDON":
		return SearchSavedOn
	case "SAVEDSINCE":
		return SearchSavedSince
	}
	return 0
}

func numberOp(w []byte) (op SearchOp, limit uint64) {
	switch string(w) {
	case "LARGER":
		return SearchLarger, math.MaxInt64
	case "SMALLER":
		return SearchSmaller, math.MaxInt64
	case "OLDER":
		return SearchOlder, math.MaxUint32
	case "YOUNGER":
		return SearchYounger, math.MaxUint32
	}
	return 0, 0
}

func textOp(w []byte) (op SearchOp, header string) {
	switch string(w) {
	case "FROM":
		return SearchEnvelope, "From"
	case "TO":
		return SearchEnvelope, "To"
	case "CC":
		return SearchEnvelope, "Cc"
	case "BCC":
		return SearchEnvelope, "Bcc"
	case "SUBJECT":
		return SearchEnvelope, "Subject"
	case "BODY":
		return SearchBody, ""
	case "TEXT":
		return SearchText, ""
	}
	return 0, ""
}

// parseText takes a text to search for.
func (p *searchParser) parseText() (string, error) {
	s, err := p.r.astring()
	if err == nil && !utf8.ValidString(s) {
		err = bad("A text to search for must be UTF-8.")
	}
	return s, err
}

func (p *searchParser) parseOr(depth int) (SearchKey, error) {
	either, err := p.parseKey(depth + 1)
	if err != nil {
		return either, err
	}
	if err = p.r.sp(); err != nil {
		return either, err
	}
	other, err := p.parseKey(depth + 1)
	return SearchKey{Op: SearchOr, Keys: []SearchKey{either, other}}, err
}

func (p *searchParser) parseHeader() (SearchKey, error) {
	k := SearchKey{Op: SearchHeader}
	var err error
	if k.Header, err = p.r.astring(); err != nil {
		return k, err
	}
	if err = p.r.sp(); err != nil {
		return k, err
	}
	k.Text, err = p.parseText()
	return k, err
}

// parseModSeq takes [entry-name SP entry-type SP] mod-sequence. We keep one
// mod-sequence per message, so the entry does not matter (RFC 7162 §3.1.5).
func (p *searchParser) parseModSeq() (SearchKey, error) {
	r := p.r
	k := SearchKey{Op: SearchModSeq}
	if r.peek() == '"' {
		if _, err := r.quoted(); err != nil {
			return k, err
		}
		if err := r.sp(); err != nil {
			return k, err
		}
		switch string(r.word()) {
		case "PRIV", "SHARED", "ALL":
		default:
			return k, errSyntax
		}
		if err := r.sp(); err != nil {
			return k, err
		}
	}
	var err error
	k.Num, err = r.modSeq()
	return k, err
}

func (p *searchParser) parseObjectID(op SearchOp) (SearchKey, error) {
	s, err := p.r.astring()
	return SearchKey{Op: op, Text: s}, err
}
