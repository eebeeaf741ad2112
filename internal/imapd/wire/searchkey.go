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

// simpleKeys are the keys without an argument, except NEW.
var simpleKeys = map[string]SearchKey{
	"ALL":               {Op: SearchAll},
	"ANSWERED":          {Op: SearchFlag, Flag: Answered},
	"DELETED":           {Op: SearchFlag, Flag: Deleted},
	"DRAFT":             {Op: SearchFlag, Flag: Draft},
	"FLAGGED":           {Op: SearchFlag, Flag: Flagged},
	"SEEN":              {Op: SearchFlag, Flag: Seen},
	"RECENT":            {Op: SearchFlag, Flag: Recent},
	"UNANSWERED":        {Op: SearchFlag, Flag: Answered, Not: true},
	"UNDELETED":         {Op: SearchFlag, Flag: Deleted, Not: true},
	"UNDRAFT":           {Op: SearchFlag, Flag: Draft, Not: true},
	"UNFLAGGED":         {Op: SearchFlag, Flag: Flagged, Not: true},
	"UNSEEN":            {Op: SearchFlag, Flag: Seen, Not: true},
	"OLD":               {Op: SearchFlag, Flag: Recent, Not: true},
	"SAVEDATESUPPORTED": {Op: SearchSaveDateSupported},
}

// argumentKeys are the keys with an argument, without it.
var argumentKeys = map[string]SearchKey{
	"BEFORE":      {Op: SearchBefore},
	"ON":          {Op: SearchOn},
	"SINCE":       {Op: SearchSince},
	"SENTBEFORE":  {Op: SearchSentBefore},
	"SENTON":      {Op: SearchSentOn},
	"SENTSINCE":   {Op: SearchSentSince},
	"SAVEDBEFORE": {Op: SearchSavedBefore},
	"SAVEDON":     {Op: SearchSavedOn},
	"SAVEDSINCE":  {Op: SearchSavedSince},
	"LARGER":      {Op: SearchLarger},
	"SMALLER":     {Op: SearchSmaller},
	"OLDER":       {Op: SearchOlder},
	"YOUNGER":     {Op: SearchYounger},
	"FROM":        {Op: SearchEnvelope, Header: "From"},
	"TO":          {Op: SearchEnvelope, Header: "To"},
	"CC":          {Op: SearchEnvelope, Header: "Cc"},
	"BCC":         {Op: SearchEnvelope, Header: "Bcc"},
	"SUBJECT":     {Op: SearchEnvelope, Header: "Subject"},
	"BODY":        {Op: SearchBody},
	"TEXT":        {Op: SearchText},
	"HEADER":      {Op: SearchHeader},
	"KEYWORD":     {Op: SearchKeyword},
	"UNKEYWORD":   {Op: SearchKeyword, Not: true},
	"MODSEQ":      {Op: SearchModSeq},
	"EMAILID":     {Op: SearchEmailID},
	"THREADID":    {Op: SearchThreadID},
	"UID":         {Op: SearchNumbers},
	"OR":          {Op: SearchOr},
}

// searchParser counts the keys of a search program.
type searchParser struct {
	*Reader
	keyCount int
}

func (r *Reader) searchProgram() SearchKey {
	p := searchParser{Reader: r}
	return p.parseAnd(0)
}

// parseAnd takes keys with a space between them, all of which must hold.
func (p *searchParser) parseAnd(depth int) SearchKey {
	first := p.parseKey(depth)
	if p.peek() != ' ' {
		return first
	}
	all := SearchKey{Op: SearchAnd, Keys: []SearchKey{first}}
	for p.accept(' ') {
		all.Keys = append(all.Keys, p.parseKey(depth))
	}
	return all
}

func (p *searchParser) parseKey(depth int) SearchKey {
	if p.keyCount++; p.keyCount > MaxSearchKeys {
		fail(overLimit("The search has too many keys."))
	}
	if depth > MaxSearchDepth {
		fail(overLimit("The search is nested too deep."))
	}
	switch c := p.peek(); {
	case c == '(':
		p.pos++
		k := p.parseAnd(depth + 1)
		p.expect(')')
		return k
	case c == '*' || c == '$' || isDigit(c):
		return SearchKey{Op: SearchNumbers, Numbers: p.numSet(false)}
	}
	w := p.word()
	if k, ok := simpleKeys[string(w)]; ok {
		return k
	}
	if string(w) == "NEW" {
		return SearchKey{Op: SearchAnd, Keys: []SearchKey{simpleKeys["RECENT"], simpleKeys["UNSEEN"]}}
	}
	k, ok := argumentKeys[string(w)]
	not := string(w) == "NOT"
	if !ok && !not {
		fail(bad("There is no such search key."))
	}
	p.sp()
	if not {
		k = p.parseKey(depth + 1)
		k.Not = !k.Not
		return k
	}
	p.parseArgument(&k, depth)
	return k
}

// parseArgument takes the argument of a key that has one.
func (p *searchParser) parseArgument(k *SearchKey, depth int) {
	switch k.Op {
	case SearchLarger, SearchSmaller:
		k.Num = p.number(math.MaxInt64)
	case SearchOlder, SearchYounger:
		if k.Num = p.number(math.MaxUint32); k.Num == 0 {
			fail(bad("An age in a search is at least 1 second."))
		}
	case SearchHeader:
		k.Header = p.astring()
		p.sp()
		k.Text = p.searchText()
	case SearchEnvelope, SearchBody, SearchText:
		k.Text = p.searchText()
	case SearchEmailID, SearchThreadID:
		k.Text = p.astring()
	case SearchKeyword:
		k.Text = p.keyword()
	case SearchModSeq:
		k.Num = p.searchModSeq()
	case SearchNumbers:
		k.Numbers = p.numSet(true)
	case SearchOr:
		either := p.parseKey(depth + 1)
		p.sp()
		k.Keys = []SearchKey{either, p.parseKey(depth + 1)}
	default:
		k.Date = p.date()
	}
}

// searchText takes a text to search for.
func (r *Reader) searchText() string {
	s := r.astring()
	if !utf8.ValidString(s) {
		fail(bad("A text to search for must be UTF-8."))
	}
	return s
}

// searchModSeq takes [entry-name SP entry-type SP] mod-sequence. We keep one
// mod-sequence per message, so the entry does not matter (RFC 7162 §3.1.5).
func (r *Reader) searchModSeq() uint64 {
	if r.peek() == '"' {
		r.quoted()
		r.sp()
		switch string(r.word()) {
		case "PRIV", "SHARED", "ALL":
		default:
			fail(errSyntax)
		}
		r.sp()
	}
	return r.modSeq()
}
