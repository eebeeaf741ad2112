// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"slices"
	"strings"
)

// SystemFlags are the system flags that a client may set (RFC 9051 §2.3.2).
type SystemFlags uint8

// The system flags. Recent is the session's own: it is only ever written.
const (
	Seen SystemFlags = 1 << iota
	Answered
	Flagged
	Deleted
	Draft
	Recent

	// AllFlags are the flags that a client may change.
	AllFlags = Seen | Answered | Flagged | Deleted | Draft
)

// Flags are system flags and keywords, the latter as the client spelled them
// but each once, whatever its case.
type Flags struct {
	System   SystemFlags
	Keywords []string
}

var systemFlagNames = [...]string{`\Seen`, `\Answered`, `\Flagged`, `\Deleted`, `\Draft`, `\Recent`}

// flagList takes a parenthesised flag list.
func (r *Reader) flagList() (f Flags) {
	r.list(MaxKeywords+len(systemFlagNames), func() { r.flag(&f) })
	return f
}

// flags takes the flags of STORE: a list, or flags without parentheses.
func (r *Reader) flags() (f Flags) {
	if r.peek() == '(' {
		return r.flagList()
	}
	for {
		r.flag(&f)
		if !r.accept(' ') {
			return f
		}
	}
}

// flag takes one flag. \Recent is ignored, as clients copy it along from what
// they have fetched and no client can set it.
func (r *Reader) flag(f *Flags) {
	if r.accept('\\') {
		name := string(r.word())
		i := slices.IndexFunc(systemFlagNames[:], func(known string) bool { return strings.EqualFold(known[1:], name) })
		switch {
		case name == "":
			fail(errFlag)
		case i < 0:
			fail(newError(No, CodeCannot, "There is no such system flag."))
		}
		f.System |= 1 << i & AllFlags
		return
	}
	k := r.newKeyword()
	if slices.ContainsFunc(f.Keywords, func(have string) bool { return strings.EqualFold(have, k) }) {
		return
	}
	if len(f.Keywords) == MaxKeywords {
		fail(overLimit("A message can have at most 64 keywords."))
	}
	f.Keywords = append(f.Keywords, k)
}

var (
	errFlag    = bad("A flag is missing or wrong.")
	errKeyword = newError(No, CodeCannot, "A keyword can't have blanks, or any of (){%*\"\\] or letters beyond ASCII.")
)

// newKeyword takes a keyword that a message is to get. Whatever a client thinks that a
// keyword may be made of, it learns that this one can't be had.
func (r *Reader) newKeyword() string {
	switch r.peek() {
	case '"':
		r.quoted()
		fail(errKeyword)
	case '{':
		fail(errFlag)
	}
	b := r.takeClass(classAtom)
	if next := r.peek(); r.pos < len(r.line) && next != ' ' && next != '(' && next != ')' {
		fail(errKeyword)
	}
	return checkKeyword(b)
}

func (r *Reader) keyword() string { return checkKeyword(r.takeClass(classAtom)) }

func checkKeyword(b []byte) string {
	if len(b) == 0 {
		fail(errFlag)
	}
	if len(b) > MaxKeywordBytes {
		fail(overLimit("A keyword can have at most 100 bytes."))
	}
	return string(b)
}

// appendFlags appends a parenthesised flag list.
func appendFlags(b []byte, f Flags) []byte {
	b = append(b, '(')
	start := len(b)
	for i, name := range systemFlagNames {
		if f.System&(1<<i) != 0 {
			b = append(b, name...)
			b = append(b, ' ')
		}
	}
	for _, k := range f.Keywords {
		b = append(b, k...)
		b = append(b, ' ')
	}
	if len(b) > start {
		b[len(b)-1] = ')'
		return b
	}
	return append(b, ')')
}
