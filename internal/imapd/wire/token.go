// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"bytes"
	"io"
	"math"
	"strings"
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

var (
	errSyntax   = bad("The command's arguments are not understood.")
	errTooShort = bad("The command ends too early.")
)

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

// syntaxError is what a parser of arguments panics with, to end the whole command.
type syntaxError struct{ error }

// fail ends the parsing of a command. The error comes out of the function that defers catch.
func fail(err error) { panic(syntaxError{err}) }

func check(err error) {
	if err != nil {
		fail(err)
	}
}

func catch(err *error) {
	switch p := recover().(type) {
	case nil:
	case syntaxError:
		*err = p.error
	default:
		panic(p)
	}
}

func (r *Reader) expect(c byte) {
	switch {
	case r.accept(c):
	case r.pos >= len(r.line):
		fail(errTooShort)
	case c == ' ':
		fail(bad("A space is missing between arguments."))
	default:
		fail(errSyntax)
	}
}

func (r *Reader) sp() { r.expect(' ') }

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

// nonEmptyWord takes a keyword as word does.
func (r *Reader) nonEmptyWord() string {
	w := r.word()
	if len(w) == 0 {
		fail(errSyntax)
	}
	return string(w)
}

func (r *Reader) tag() string {
	b := r.takeClass(classTag)
	next := r.peek()
	if len(b) == 0 || len(b) > maxTagBytes || (next != ' ' && r.pos < len(r.line)) {
		fail(bad("A command begins with a tag."))
	}
	return string(b)
}

func (r *Reader) atom() string {
	b := r.takeClass(classAtom)
	if len(b) == 0 {
		fail(errSyntax)
	}
	return string(b)
}

// number takes a decimal number of at most limit.
func (r *Reader) number(limit uint64) (n uint64) {
	start := r.pos
	for ; r.pos < len(r.line) && isDigit(r.line[r.pos]); r.pos++ {
		d := uint64(r.line[r.pos] - '0')
		if n > (limit-d)/10 {
			fail(bad("A number is too large."))
		}
		n = n*10 + d
	}
	if r.pos == start {
		fail(bad("A number is missing."))
	}
	return n
}

// nzNumber32 takes a number from 1 to 2^32-1.
func (r *Reader) nzNumber32() uint32 {
	n := r.number(math.MaxUint32)
	if n == 0 {
		fail(bad("A number that cannot be 0 is 0."))
	}
	return uint32(n)
}

// modSeq takes a mod-sequence, which has 63 bits (RFC 7162 §7).
func (r *Reader) modSeq() uint64 { return r.number(math.MaxInt64) }

// astring takes an atom-like word, a quoted string or a literal.
func (r *Reader) astring() string { return r.stringOr(classAString) }

// stringOr takes a quoted string, a literal, or the bytes of a class.
func (r *Reader) stringOr(class uint8) string {
	if next := r.peek(); next == '"' || next == '{' {
		return r.str()
	}
	b := r.takeClass(class)
	switch {
	case len(b) > 0:
	case r.pos >= len(r.line):
		fail(errTooShort)
	default:
		fail(errSyntax)
	}
	return string(b)
}

// str takes a quoted string or a literal.
func (r *Reader) str() string {
	switch r.peek() {
	case '"':
		return r.quoted()
	case '{':
		return r.literal()
	}
	panic(syntaxError{bad("A string is missing.")})
}

// nstring takes a string or NIL, for which ok is false.
func (r *Reader) nstring() (s string, ok bool) {
	if r.acceptWord("NIL") {
		return "", false
	}
	return r.str(), true
}

// quoted takes a quoted string. Bytes above 127 are taken if they are UTF-8,
// as RFC 9051 §4.3 has it and clients of RFC 3501 do anyway.
func (r *Reader) quoted() string {
	r.pos++
	rest := r.line[r.pos:]
	n := bytes.IndexAny(rest, `"\`)
	out := rest[:max(n, 0)]
	if n >= 0 && rest[n] == '\\' {
		out = append(make([]byte, 0, n+32), out...)
	}
	for ; n >= 0 && n < len(rest) && rest[n] != '"'; n++ {
		if rest[n] == '\\' {
			if n++; n == len(rest) || rest[n] != '"' && rest[n] != '\\' {
				fail(bad("A backslash in a quoted string comes before a quote or a backslash."))
			}
		}
		out = append(out, rest[n])
	}
	if n < 0 || n == len(rest) {
		fail(bad("A quoted string has no end."))
	}
	if r.pos += n + 1; !utf8.Valid(out) {
		fail(bad("A quoted string is not UTF-8; send a literal."))
	}
	return string(out)
}

// literal takes an argument's literal and makes the line after it the current
// one. It asks for a synchronising one, unless it is too large to be taken.
func (r *Reader) literal() string {
	n, sync, ok := r.literalAhead()
	if !ok {
		fail(bad("A literal is announced as {size} at the end of a line."))
	}
	if n > int64(r.literalLeft) {
		fail(newError(Bad, CodeTooBig, "The literals of this command are too long."))
	}
	r.literalLeft -= int(n)
	if sync {
		check(r.continueRequest("Go on."))
	}
	b := make([]byte, n)
	_, err := io.ReadFull(r.br, b)
	check(unexpectedEOF(err))
	check(r.nextLine())
	if bytes.IndexByte(b, 0) >= 0 {
		fail(bad("A literal cannot hold NUL here."))
	}
	return string(b)
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
func (r *Reader) list(limit int, item func()) {
	r.expect('(')
	for n := 0; !r.accept(')'); n++ {
		if n > 0 {
			r.sp()
		}
		if n == limit {
			fail(overLimit("A list has too many entries."))
		}
		item()
	}
}

// mailbox takes a mailbox name, or one with wildcards (list-mailbox), and
// returns it in UTF-8. INBOX is INBOX in any case (RFC 9051 §5.1). Only LIST and
// LSUB may have "%" and "*" without quotes; some clients (offlineimap) put no
// quotes around names either.
func (r *Reader) mailbox() string {
	name, err := r.mailboxName(r.stringOr(classList))
	check(err)
	return name
}

func (r *Reader) mailboxName(s string) (string, error) {
	if strings.EqualFold(s, "INBOX") {
		return "INBOX", nil
	}
	notASCII := func(c rune) bool { return c >= utf8.RuneSelf } // as modified UTF-7 never is (RFC 9755 §3)
	if r.UTF8 || strings.ContainsFunc(s, notASCII) {
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

// unmatchedPattern is no name in UTF-8.
const unmatchedPattern = "\xff"

// pattern takes a list-mailbox. One that no name is made of, since it is not
// modified UTF-7, is a pattern that no folder matches.
func (r *Reader) pattern() string {
	name, err := r.mailboxName(r.stringOr(classList))
	if err != nil && !r.UTF8 {
		return unmatchedPattern
	}
	check(err)
	return name
}
