// SPDX-License-Identifier: Apache-2.0

package wire

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
func (r *Reader) flagList() (Flags, error) {
	var f Flags
	err := r.list(MaxKeywords+len(systemFlagNames), func() error { return r.flag(&f) })
	return f, err
}

// flags takes the flags of STORE: a list, or flags without parentheses.
func (r *Reader) flags() (Flags, error) {
	if r.peek() == '(' {
		return r.flagList()
	}
	var f Flags
	for {
		if err := r.flag(&f); err != nil {
			return f, err
		}
		if !r.accept(' ') {
			return f, nil
		}
	}
}

// flag takes one flag. \Recent is ignored, as clients copy it along from what
// they have fetched and no client can set it.
func (r *Reader) flag(f *Flags) error {
	if r.accept('\\') {
		switch string(r.word()) {
		case "SEEN":
			f.System |= Seen
		case "ANSWERED":
			f.System |= Answered
		case "FLAGGED":
			f.System |= Flagged
		case "DELETED":
			f.System |= Deleted
		case "DRAFT":
			f.System |= Draft
		case "RECENT":
		case "":
			return bad("A flag is missing or wrong.")
		default:
			return newError(No, CodeCannot, "There is no such system flag.")
		}
		return nil
	}
	k, err := r.newKeyword()
	if err != nil {
		return err
	}
	for _, have := range f.Keywords {
		if equalFoldASCII(have, k) {
			return nil
		}
	}
	if len(f.Keywords) == MaxKeywords {
		return overLimit("A message can have at most 64 keywords.")
	}
	f.Keywords = append(f.Keywords, k)
	return nil
}

// newKeyword takes a keyword that a message is to get. Whatever a client thinks that a
// keyword may be made of, it learns that this one can't be had.
func (r *Reader) newKeyword() (string, error) {
	impossible := newError(No, CodeCannot, "A keyword can't have blanks, or any of (){%*\"\\] or letters beyond ASCII.")
	switch r.peek() {
	case '"':
		if _, err := r.quoted(); err != nil {
			return "", err
		}
		return "", impossible
	case '{':
		return "", bad("A flag is missing or wrong.")
	}
	k, err := r.keyword()
	end := r.pos
	for next := r.peek(); r.pos < len(r.line) && next != ' ' && next != '(' && next != ')'; next = r.peek() {
		r.pos++
	}
	if r.pos > end {
		return "", impossible
	}
	return k, err
}

func (r *Reader) keyword() (string, error) {
	k, err := r.atom()
	if err != nil {
		return "", bad("A flag is missing or wrong.")
	}
	if len(k) > MaxKeywordBytes {
		return "", overLimit("A keyword can have at most 100 bytes.")
	}
	return k, nil
}

// equalFoldASCII reports whether two ASCII words differ in case only.
func equalFoldASCII(a, b string) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range len(a) {
		if lower(a[i]) != lower(b[i]) {
			return false
		}
	}
	return true
}

func lower(c byte) byte {
	if c >= 'A' && c <= 'Z' {
		return c + 'a' - 'A'
	}
	return c
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
