// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"bytes"
	"errors"
	"io"
	"math"
	"unicode/utf8"

	"github.com/mailstead/mailstead/internal/message"
)

// Character classes of RFC 9051 §9.
const (
	classAtom    uint8 = 1 << iota // ATOM-CHAR
	classAString                   // ASTRING-CHAR: ATOM-CHAR and ]
	classList                      // list-char: ASTRING-CHAR and the wildcards
	classTag                       // ASTRING-CHAR without +
	classWord                      // what our keywords are made of
)

var charClasses = func() (t [256]uint8) {
	for c := 0x21; c < 0x7f; c++ {
		switch c {
		case '(', ')', '{', '"', '\\':
			continue
		case '%', '*':
			t[c] = classList
			continue
		case ']':
			t[c] = classAString | classList | classTag
			continue
		}
		t[c] = classAtom | classAString | classList | classTag
		switch {
		case c >= 'A' && c <= 'Z', c >= 'a' && c <= 'z', isDigit(byte(c)),
			c == '.', c == '-', c == '=', c == '_', c == '+', c == '/', c == '&':
			t[c] |= classWord
		}
	}
	t['+'] &^= classTag
	return t
}()

func isDigit(c byte) bool { return c >= '0' && c <= '9' }

var errSyntax = bad("The command's arguments are not understood.")

// peek returns the byte at the cursor, 0 at the end of the line.
func (r *Reader) peek() byte {
	if r.pos < len(r.line) {
		return r.line[r.pos]
	}
	return 0
}

// accept moves past c if it is next.
func (r *Reader) accept(c byte) bool {
	if r.peek() != c || r.pos >= len(r.line) {
		return false
	}
	r.pos++
	return true
}

func (r *Reader) expect(c byte) error {
	if r.accept(c) {
		return nil
	}
	switch {
	case r.pos >= len(r.line):
		return bad("The command ends too early.")
	case c == ' ':
		return bad("A space is missing between arguments.")
	}
	return errSyntax
}

func (r *Reader) sp() error { return r.expect(' ') }

func (r *Reader) expectEnd() error {
	if r.pos < len(r.line) {
		return bad("The command has more arguments than it takes.")
	}
	return nil
}

// takeClass takes the longest run of bytes of a class; it may be empty.
func (r *Reader) takeClass(of uint8) []byte {
	start := r.pos
	for r.pos < len(r.line) && charClasses[r.line[r.pos]]&of != 0 {
		r.pos++
	}
	return r.line[start:r.pos]
}

// word takes a keyword and makes it upper case, in place: it is for names
// whose case means nothing. It may be empty.
func (r *Reader) word() []byte {
	b := r.takeClass(classWord)
	for i, c := range b {
		if c >= 'a' && c <= 'z' {
			b[i] = c - ('a' - 'A')
		}
	}
	return b
}

// acceptWord moves past the keyword want, given in upper case, if it is next.
func (r *Reader) acceptWord(want string) bool {
	start := r.pos
	if string(r.word()) == want {
		return true
	}
	r.pos = start
	return false
}

func (r *Reader) tag() (string, error) {
	b := r.takeClass(classTag)
	next := r.peek()
	if len(b) == 0 || len(b) > maxTagBytes || (next != ' ' && r.pos < len(r.line)) {
		return "", bad("A command begins with a tag.")
	}
	return string(b), nil
}

func (r *Reader) atom() (string, error) {
	b := r.takeClass(classAtom)
	if len(b) == 0 {
		return "", errSyntax
	}
	return string(b), nil
}

// number takes a decimal number of at most limit.
func (r *Reader) number(limit uint64) (uint64, error) {
	start := r.pos
	var n uint64
	for r.pos < len(r.line) && isDigit(r.line[r.pos]) {
		d := uint64(r.line[r.pos] - '0')
		if n > (limit-d)/10 {
			return 0, bad("A number is too large.")
		}
		n = n*10 + d
		r.pos++
	}
	if r.pos == start {
		return 0, bad("A number is missing.")
	}
	return n, nil
}

func (r *Reader) number32() (uint32, error) {
	n, err := r.number(math.MaxUint32)
	return uint32(n), err
}

// nzNumber32 takes a number from 1 to 2^32-1.
func (r *Reader) nzNumber32() (uint32, error) {
	n, err := r.number32()
	if err == nil && n == 0 {
		return 0, bad("A number that cannot be 0 is 0.")
	}
	return n, err
}

// modSeq takes a mod-sequence, which has 63 bits (RFC 7162 §7).
func (r *Reader) modSeq() (uint64, error) { return r.number(math.MaxInt64) }

// astring takes an atom-like word, a quoted string or a literal.
func (r *Reader) astring() (string, error) {
	switch r.peek() {
	case '"', '{':
		return r.str()
	}
	b := r.takeClass(classAString)
	if len(b) == 0 {
		if r.pos >= len(r.line) {
			return "", bad("The command ends too early.")
		}
		return "", errSyntax
	}
	return string(b), nil
}

// str takes a quoted string or a literal.
func (r *Reader) str() (string, error) {
	switch r.peek() {
	case '"':
		return r.quoted()
	case '{':
		return r.literal()
	}
	return "", bad("A string is missing.")
}

// nstring takes a string or NIL, for which ok is false.
func (r *Reader) nstring() (s string, ok bool, err error) {
	if r.acceptWord("NIL") {
		return "", false, nil
	}
	s, err = r.str()
	return s, true, err
}

// quoted takes a quoted string. Bytes above 127 are taken if they are UTF-8,
// as RFC 9051 §4.3 has it and clients of RFC 3501 do anyway.
func (r *Reader) quoted() (string, error) {
	r.pos++
	rest := r.line[r.pos:]
	n := bytes.IndexAny(rest, `"\`)
	if n < 0 {
		return "", bad("A quoted string has no end.")
	}
	var s string
	if rest[n] == '"' {
		s = string(rest[:n])
		r.pos += n + 1
	} else {
		out := append(make([]byte, 0, n+32), rest[:n]...)
		for ; rest[n] != '"'; n++ {
			if rest[n] == '\\' {
				n++
				if n >= len(rest) || (rest[n] != '"' && rest[n] != '\\') {
					return "", bad("A backslash in a quoted string comes before a quote or a backslash.")
				}
			}
			out = append(out, rest[n])
			if n+1 >= len(rest) {
				return "", bad("A quoted string has no end.")
			}
		}
		s = string(out)
		r.pos += n + 1
	}
	if !utf8.ValidString(s) {
		return "", bad("A quoted string is not UTF-8; send a literal.")
	}
	return s, nil
}

// literal takes an argument's literal and makes the line after it the current
// one. It asks for a synchronising one, unless it is too large to be taken.
func (r *Reader) literal() (string, error) {
	n, sync, ok := r.literalAhead()
	if !ok {
		return "", bad("A literal is announced as {size} at the end of a line.")
	}
	if n > int64(r.literalLeft) {
		return "", newError(Bad, CodeTooBig, "The literals of this command are too long.")
	}
	r.literalLeft -= int(n)
	if sync {
		if err := r.continueRequest("Go on."); err != nil {
			return "", err
		}
	}
	b := make([]byte, n)
	if _, err := io.ReadFull(r.br, b); err != nil {
		return "", unexpectedEOF(err)
	}
	if err := r.nextLine(); err != nil {
		return "", err
	}
	if bytes.IndexByte(b, 0) >= 0 {
		return "", bad("A literal cannot hold NUL here.")
	}
	return string(b), nil
}

// literalAhead reports the literal announced by all that is left of the line.
func (r *Reader) literalAhead() (n int64, sync, ok bool) {
	if bytes.LastIndexByte(r.line, '{') != r.pos {
		return 0, false, false
	}
	return parseLiteral(r.line)
}

// list takes a parenthesised list with item called at each entry. It may be
// empty; a caller that needs an entry checks.
func (r *Reader) list(limit int, item func() error) error {
	if err := r.expect('('); err != nil {
		return err
	}
	if r.accept(')') {
		return nil
	}
	for n := 0; ; n++ {
		if n == limit {
			return overLimit("A list has too many entries.")
		}
		if err := item(); err != nil {
			return err
		}
		if r.accept(')') {
			return nil
		}
		if err := r.sp(); err != nil {
			return err
		}
	}
}

// mailbox takes a mailbox name, or one with wildcards (list-mailbox), and
// returns it in UTF-8. INBOX is INBOX in any case (RFC 9051 §5.1). Only LIST and
// LSUB may have "%" and "*" without quotes; some clients (offlineimap) put no
// quotes around names either.
func (r *Reader) mailbox() (string, error) {
	switch r.peek() {
	case '"', '{':
		s, err := r.str()
		if err != nil {
			return "", err
		}
		return r.mailboxName(s)
	}
	b := r.takeClass(classList)
	if len(b) == 0 {
		if r.pos >= len(r.line) {
			return "", bad("The command ends too early.")
		}
		return "", errSyntax
	}
	return r.mailboxName(string(b))
}

func (r *Reader) mailboxName(s string) (string, error) {
	if len(s) == 5 && equalFold(s, "INBOX") {
		return "INBOX", nil
	}
	if r.UTF8 || !isASCII(s) { // which modified UTF-7 is (RFC 9755 §3)
		if !utf8.ValidString(s) {
			return "", newError(No, CodeCannot, "A mailbox name must be UTF-8.")
		}
		return s, nil
	}
	name, err := message.DecodeUTF7(s)
	if err != nil {
		return "", newError(No, CodeCannot, "A mailbox name must be modified UTF-7 (RFC 3501 section 5.1.3).")
	}
	return name, nil
}

func isASCII(s string) bool {
	for i := range len(s) {
		if s[i] >= utf8.RuneSelf {
			return false
		}
	}
	return true
}

// pattern takes a list-mailbox. One that no name is made of, since it is not
// modified UTF-7, is a pattern that no folder matches.
func (r *Reader) pattern() (string, error) {
	name, err := r.mailbox()
	var refused *Error
	if !r.UTF8 && errors.As(err, &refused) && refused.Code == CodeCannot {
		return unmatchedPattern, nil
	}
	return name, err
}

// unmatchedPattern is no name in UTF-8.
const unmatchedPattern = "\xff"

// equalFold compares with upper, which is ASCII in upper case.
func equalFold(s, upper string) bool {
	if len(s) != len(upper) {
		return false
	}
	for i := range len(s) {
		c := s[i]
		if c >= 'a' && c <= 'z' {
			c -= 'a' - 'A'
		}
		if c != upper[i] {
			return false
		}
	}
	return true
}
