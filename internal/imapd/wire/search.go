// SPDX-License-Identifier: Apache-2.0

package wire

import "strings"

// SearchReturn are the results that RETURN asks for, as bits (RFC 9051
// §6.4.4; SAVE is SEARCHRES).
type SearchReturn uint8

// The results. RETURN () sets ReturnAll; ReturnPartial comes with
// SearchOptions.Partial (RFC 9394).
const (
	ReturnMin SearchReturn = 1 << iota
	ReturnMax
	ReturnAll
	ReturnCount
	ReturnSave
	ReturnPartial
)

// SearchOptions are what SEARCH and SORT are to answer.
type SearchOptions struct {
	Extended bool // RETURN was given: answer with ESEARCH
	Return   SearchReturn
	Partial  Page
}

// Search is SEARCH. All its keys must hold: Key is a SearchAnd of them, or the
// one key itself.
type Search struct {
	UID bool // answer with UIDs
	SearchOptions
	Key SearchKey
}

// Name returns the command's name.
func (c *Search) Name() string { return uidName(c.UID, "SEARCH") }

func (r *Reader) search(uid bool) Command {
	cmd := Search{UID: uid, SearchOptions: r.searchOptions()}
	if r.acceptWord("CHARSET") {
		if r.sp(); r.NoCharset {
			fail(bad("Searches are in UTF-8 and name no charset."))
		}
		r.charset()
		r.sp()
	}
	cmd.Key = r.searchProgram()
	return &cmd
}

// searchOptions takes RETURN (…) and the space after it, if it is there.
func (r *Reader) searchOptions() (o SearchOptions) {
	if !r.acceptWord("RETURN") {
		return o
	}
	o.Extended = true
	r.sp()
	r.list(maxListItems, func() {
		result, known := searchReturnNames[string(r.word())]
		if !known {
			fail(bad("There is no such RETURN option."))
		}
		if result == ReturnPartial {
			if o.Return&ReturnPartial != 0 {
				fail(bad("There is more than one PARTIAL."))
			}
			r.sp()
			o.Partial = r.page()
		}
		o.Return |= result
	})
	if o.Return == 0 {
		o.Return = ReturnAll
	}
	if o.Return&ReturnAll != 0 && o.Return&ReturnPartial != 0 {
		fail(bad("ALL and PARTIAL exclude each other."))
	}
	r.sp()
	r.savesResult = o.Return&ReturnSave != 0
	return o
}

var searchReturnNames = map[string]SearchReturn{
	"MIN": ReturnMin, "MAX": ReturnMax, "ALL": ReturnAll, "COUNT": ReturnCount, "SAVE": ReturnSave, "PARTIAL": ReturnPartial,
}

// charset takes the name of a charset that we search in: UTF-8 or a part of it.
func (r *Reader) charset() {
	if name := r.astring(); !strings.EqualFold(name, "UTF-8") && !strings.EqualFold(name, "US-ASCII") {
		fail(newError(No, CodeBadCharset("US-ASCII", "UTF-8"), "Search in UTF-8."))
	}
}

// Sort is SORT (RFC 5256, ESORT RFC 5267).
type Sort struct {
	UID bool
	SearchOptions
	By  []SortBy
	Key SearchKey
}

// SortBy is one criterion of SORT: ARRIVAL, CC, DATE, FROM, SIZE, SUBJECT, TO,
// DISPLAYFROM or DISPLAYTO (RFC 5957).
type SortBy struct {
	Field   string
	Reverse bool
}

// Name returns the command's name.
func (c *Sort) Name() string { return uidName(c.UID, "SORT") }

func (r *Reader) sort(uid bool) Command {
	cmd := Sort{UID: uid, SearchOptions: r.searchOptions()}
	r.list(maxListItems, func() {
		var by SortBy
		if by.Reverse = r.acceptWord("REVERSE"); by.Reverse {
			r.sp()
		}
		switch by.Field = string(r.word()); by.Field {
		case "ARRIVAL", "CC", "DATE", "FROM", "SIZE", "SUBJECT", "TO", "DISPLAYFROM", "DISPLAYTO":
		default:
			fail(bad("There is no such SORT criterion."))
		}
		cmd.By = append(cmd.By, by)
	})
	if len(cmd.By) == 0 {
		fail(bad("SORT needs a criterion."))
	}
	cmd.Key = r.charsetAndProgram()
	return &cmd
}

// Thread is THREAD (RFC 5256).
type Thread struct {
	UID       bool
	Algorithm string // ORDEREDSUBJECT or REFERENCES
	Key       SearchKey
}

// Name returns the command's name.
func (c *Thread) Name() string { return uidName(c.UID, "THREAD") }

func (r *Reader) thread(uid bool) Command {
	cmd := Thread{UID: uid, Algorithm: string(r.word())}
	if cmd.Algorithm != "ORDEREDSUBJECT" && cmd.Algorithm != "REFERENCES" {
		fail(bad("There is no such THREAD algorithm."))
	}
	cmd.Key = r.charsetAndProgram()
	return &cmd
}

// charsetAndProgram takes what ends SORT and THREAD.
func (r *Reader) charsetAndProgram() SearchKey {
	r.sp()
	r.charset()
	r.sp()
	return r.searchProgram()
}
