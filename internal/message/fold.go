// SPDX-License-Identifier: Apache-2.0

package message

import (
	"encoding/base64"
	"strings"
	"unicode/utf8"
)

// RFC 5322 §2.1.1 and RFC 2047 §2.
const (
	foldColumn     = 78
	wordFoldColumn = 76
	maxEncodedWord = 75
)

// fieldWriter writes header fields, folded.
type fieldWriter struct {
	dst []byte
	col int // octets on the current line
}

func (w *fieldWriter) begin(name string) {
	w.dst = append(w.dst, name...)
	w.dst = append(w.dst, ':')
	w.col = len(name) + 1
}

func (w *fieldWriter) end() {
	w.dst = append(w.dst, "\r\n"...)
	w.col = 0
}

// field writes a field with a value that is never split, if it is not empty.
func (w *fieldWriter) field(name, value string) {
	if value != "" {
		w.begin(name)
		w.put(value)
		w.end()
	}
}

// put writes s, which is never split, after a space or a fold.
func (w *fieldWriter) put(s string) {
	if w.col > 1 && w.col+1+len(s) > foldColumn && !w.atStart() {
		w.fold()
	} else {
		w.putNoSpace(" ")
	}
	w.putNoSpace(s)
}

// atStart reports whether the line has only the field's name. A fold there is legal, but not all
// software understands it.
func (w *fieldWriter) atStart() bool { return w.dst[len(w.dst)-1] == ':' }

func (w *fieldWriter) putNoSpace(s string) {
	w.dst = append(w.dst, s...)
	w.col += len(s)
}

func (w *fieldWriter) fold() {
	w.dst = append(w.dst, "\r\n "...)
	w.col = 1
}

// unstructured writes unstructured text: unchanged if that is safe, else in encoded words.
func (w *fieldWriter) unstructured(s string) {
	if !isPlainText(s) {
		w.encodedWords(s)
		return
	}
	// Fold only before a word, so that no line has only spaces.
	for s != "" {
		n := 0
		for n < len(s) && s[n] == ' ' {
			n++
		}
		end := len(s)
		if i := strings.IndexByte(s[n:], ' '); i >= 0 {
			end = n + i
		}
		spaces, word := s[:n], s[n:end]
		if n > 0 {
			spaces = s[1:n]
		}
		if spaces == "" {
			w.put(word)
		} else {
			w.put(spaces + word)
		}
		s = s[end:]
	}
}

// isPlainText reports whether a reader gets s back from an unstructured field that contains it
// unchanged.
func isPlainText(s string) bool {
	if !isPrintableASCII(s) || strings.Contains(s, "=?") || s != strings.TrimSpace(s) {
		return false
	}
	run, spaces := 0, 0
	for i := range len(s) {
		if s[i] == ' ' {
			run, spaces = 0, spaces+1
		} else {
			run, spaces = run+1, 0
		}
		if run > maxLineLength/2 || spaces > maxLineLength/4 {
			return false
		}
	}
	return true
}

// encodedWords writes s as encoded words (RFC 2047) of whole characters, in Q or B, whichever is
// shorter. They are safe in a phrase, too.
func (w *fieldWriter) encodedWords(s string) {
	s = strings.ToValidUTF8(s, "\uFFFD")
	special := 0
	for i := range len(s) {
		if !isQLiteral(s[i]) && s[i] != ' ' {
			special++
		}
	}
	inB := 2*special > len(s)/3
	const frame = len("=?utf-8?q??=")
	w.putNoSpace(" ")
	for s != "" {
		capacity := min(maxEncodedWord, wordFoldColumn-w.col) - frame
		n := fitLength(s, capacity, inB)
		if n == 0 {
			w.fold()
			continue
		}
		if inB {
			w.putNoSpace("=?utf-8?b?" + base64.StdEncoding.EncodeToString([]byte(s[:n])))
		} else {
			w.putNoSpace("=?utf-8?q?")
			w.encodeQ(s[:n])
		}
		w.putNoSpace("?=")
		if s = s[n:]; s != "" {
			w.fold()
		}
	}
}

// fitLength returns how many bytes of s, in whole characters, fit into capacity octets of an
// encoded word.
func fitLength(s string, capacity int, inB bool) int {
	if inB {
		capacity = capacity / 4 * 3
	}
	n, used := 0, 0
	for n < len(s) {
		_, size := utf8.DecodeRuneInString(s[n:])
		cost := size
		if !inB {
			for i := n; i < n+size; i++ {
				if !isQLiteral(s[i]) && s[i] != ' ' {
					cost += 2
				}
			}
		}
		if used += cost; used > capacity {
			break
		}
		n += size
	}
	return n
}

func (w *fieldWriter) encodeQ(s string) {
	for i := range len(s) {
		switch c := s[i]; {
		case c == ' ':
			w.dst = append(w.dst, '_')
			w.col++
		case isQLiteral(c):
			w.dst = append(w.dst, c)
			w.col++
		default:
			w.dst = append(w.dst, '=', upperHex[c>>4], upperHex[c&15])
			w.col += 3
		}
	}
}

// isQLiteral reports whether c can be unencoded in an encoded word of a phrase, RFC 2047 §5 (3).
func isQLiteral(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' ||
		c == '!' || c == '*' || c == '+' || c == '-' || c == '/'
}

// addresses writes an address list.
func (w *fieldWriter) addresses(list []Address) {
	for i, a := range list {
		comma := ","
		if i == len(list)-1 {
			comma = ""
		}
		if a.Name == "" {
			w.put(a.spec() + comma)
			continue
		}
		w.phrase(a.Name)
		w.put("<" + a.spec() + ">" + comma)
	}
}

// phrase writes a display name: as words, quoted, or encoded.
func (w *fieldWriter) phrase(s string) {
	const longQuoted = 60
	switch {
	case !isPlainText(s):
		w.encodedWords(s)
	case isAtoms(s):
		w.unstructured(s)
	case len(s) <= longQuoted:
		w.put(quote(s))
	default:
		w.encodedWords(s)
	}
}

// spec returns the address for a header, with its local part quoted if necessary.
func (a Address) spec() string {
	if isDotAtom(a.Local) {
		return a.Local + "@" + a.Domain
	}
	return quote(a.Local) + "@" + a.Domain
}

func quote(s string) string {
	var b strings.Builder
	b.WriteByte('"')
	for i := range len(s) {
		if s[i] == '"' || s[i] == '\\' {
			b.WriteByte('\\')
		}
		b.WriteByte(s[i])
	}
	b.WriteByte('"')
	return b.String()
}

// isAtext implements RFC 5322 §3.2.3 with the non-ASCII characters of RFC 6532.
func isAtext(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c >= 0x80 ||
		strings.IndexByte("!#$%&'*+-/=?^_`{|}~", c) >= 0
}

// isAtoms reports whether s is words separated by single spaces.
func isAtoms(s string) bool {
	for i := range len(s) {
		if s[i] == ' ' {
			if i > 0 && s[i-1] == ' ' {
				return false
			}
		} else if !isAtext(s[i]) {
			return false
		}
	}
	return s != ""
}

func isDotAtom(s string) bool {
	if s == "" || s[0] == '.' || s[len(s)-1] == '.' || strings.Contains(s, "..") {
		return false
	}
	for i := range len(s) {
		if s[i] != '.' && !isAtext(s[i]) {
			return false
		}
	}
	return true
}
