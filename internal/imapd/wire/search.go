// SPDX-License-Identifier: Apache-2.0

package wire

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

func (r *Reader) search(uid bool) (Command, error) {
	cmd := Search{UID: uid}
	err := r.searchOptions(&cmd.SearchOptions)
	if err != nil {
		return nil, err
	}
	if r.acceptWord("CHARSET") {
		if err = r.sp(); r.NoCharset {
			err = bad("Searches are in UTF-8 and name no charset.")
		}
		if err == nil {
			err = r.charset()
		}
		if err == nil {
			err = r.sp()
		}
	}
	if err == nil {
		cmd.Key, err = r.searchProgram()
	}
	return &cmd, cmd.markUnsaved(err)
}

// markUnsaved marks the refusal of a command that was to save its result. A BAD
// leaves alone what was saved before (RFC 5182 §2.1).
func (o *SearchOptions) markUnsaved(err error) error {
	if e, ok := err.(*Error); ok && e.Status == No && o.Return&ReturnSave != 0 {
		unsaving := *e
		unsaving.ClearsSaved = true
		return &unsaving
	}
	return err
}

// searchOptions takes RETURN (…) and the space after it, if it is there.
func (r *Reader) searchOptions(o *SearchOptions) error {
	if !r.acceptWord("RETURN") {
		return nil
	}
	o.Extended = true
	if err := r.sp(); err != nil {
		return err
	}
	if err := r.list(maxListItems, func() error { return r.searchReturn(o) }); err != nil {
		return err
	}
	if o.Return == 0 {
		o.Return = ReturnAll
	}
	if o.Return&ReturnAll != 0 && o.Return&ReturnPartial != 0 {
		return bad("ALL and PARTIAL exclude each other.")
	}
	return r.sp()
}

func (r *Reader) searchReturn(o *SearchOptions) (err error) {
	switch string(r.word()) {
	case "MIN":
		o.Return |= ReturnMin
	case "MAX":
		o.Return |= ReturnMax
	case "ALL":
		o.Return |= ReturnAll
	case "COUNT":
		o.Return |= ReturnCount
	case "SAVE":
		o.Return |= ReturnSave
	case "PARTIAL":
		if o.Return&ReturnPartial != 0 {
			return bad("There is more than one PARTIAL.")
		}
		if err := r.sp(); err != nil {
			return err
		}
		o.Return |= ReturnPartial
		o.Partial, err = r.page()
	default:
		return bad("There is no such RETURN option.")
	}
	return err
}

// charset takes the name of a charset that we search in: UTF-8 or a part of it.
func (r *Reader) charset() error {
	name, err := r.astring()
	if err != nil {
		return err
	}
	if equalFoldASCII(name, "UTF-8") || equalFoldASCII(name, "US-ASCII") {
		return nil
	}
	return newError(No, BadCharset("US-ASCII", "UTF-8"), "Search in UTF-8.")
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

func (r *Reader) sort(uid bool) (Command, error) {
	cmd := Sort{UID: uid}
	err := r.searchOptions(&cmd.SearchOptions)
	if err != nil {
		return nil, err
	}
	if err = r.list(maxListItems, func() error { return r.sortBy(&cmd) }); err != nil {
		return nil, err
	}
	if len(cmd.By) == 0 {
		return nil, bad("SORT needs a criterion.")
	}
	cmd.Key, err = r.charsetAndProgram()
	return &cmd, cmd.markUnsaved(err)
}

func (r *Reader) sortBy(cmd *Sort) error {
	var by SortBy
	if r.acceptWord("REVERSE") {
		by.Reverse = true
		if err := r.sp(); err != nil {
			return err
		}
	}
	switch w := r.word(); string(w) {
	case "ARRIVAL", "CC", "DATE", "FROM", "SIZE", "SUBJECT", "TO", "DISPLAYFROM", "DISPLAYTO":
		by.Field = string(w)
	default:
		return bad("There is no such SORT criterion.")
	}
	cmd.By = append(cmd.By, by)
	return nil
}

// Thread is THREAD (RFC 5256).
type Thread struct {
	UID       bool
	Algorithm string // ORDEREDSUBJECT or REFERENCES
	Key       SearchKey
}

// Name returns the command's name.
func (c *Thread) Name() string { return uidName(c.UID, "THREAD") }

func (r *Reader) thread(uid bool) (Command, error) {
	cmd := Thread{UID: uid}
	switch w := r.word(); string(w) {
	case "ORDEREDSUBJECT", "REFERENCES":
		cmd.Algorithm = string(w)
	default:
		return nil, bad("There is no such THREAD algorithm.")
	}
	var err error
	cmd.Key, err = r.charsetAndProgram()
	return &cmd, err
}

// charsetAndProgram takes what ends SORT and THREAD.
func (r *Reader) charsetAndProgram() (key SearchKey, err error) {
	if err = r.sp(); err != nil {
		return key, err
	}
	if err = r.charset(); err != nil {
		return key, err
	}
	if err = r.sp(); err != nil {
		return key, err
	}
	return r.searchProgram()
}
