// SPDX-License-Identifier: Apache-2.0

package message

import (
	"cmp"
	"strconv"
	"strings"
	"unicode"

	"golang.org/x/text/unicode/norm"
)

// CleanFilename returns a name that is safe as a file name: without folders, and without characters
// that hide its extension; "" if nothing is left.
func CleanFilename(name string) string {
	if i := strings.LastIndexAny(name, `/\`); i >= 0 {
		name = name[i+1:]
	}
	name = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r) || r == byteOrderMark || r == '\u2028' || r == '\u2029' {
			return -1
		}
		return r
	}, strings.ToValidUTF8(name, "\uFFFD"))
	name = strings.TrimSpace(name)
	if strings.Trim(name, ".") == "" {
		return ""
	}
	return name
}

// isASCIIFileName reports whether a name can be in a quoted string unchanged.
func isASCIIFileName(name string) bool {
	return isPrintableASCII(name) && !strings.Contains(name, "=?")
}

// nameParameter writes the name parameter of Content-Type, if there is a name. A name that is not
// ASCII becomes encoded words, which RFC 2047 forbids there, but mail readers understand.
func (w *fieldWriter) nameParameter(name string) {
	if name == "" {
		return
	}
	w.putNoSpace(";")
	if isASCIIFileName(name) {
		w.put("name=" + quote(name))
		return
	}
	var words fieldWriter
	words.begin("name")
	words.encodedWords(name)
	before := `name="`
	for word := range strings.FieldsSeq(strings.TrimPrefix(string(words.dst), "name:")) {
		w.put(before + word)
		before = ""
	}
	w.putNoSpace(`"`)
}

// filenameParameter writes the filename parameter of Content-Disposition, if there is a name. A
// name that is not ASCII is written in the form of RFC 2231, after a transliteration for readers
// that don't know it.
func (w *fieldWriter) filenameParameter(name string) {
	if name == "" {
		return
	}
	w.putNoSpace(";")
	if isASCIIFileName(name) {
		w.put("filename=" + quote(name))
		return
	}
	w.put("filename=" + quote(transliterate(name)))
	rest := percentEncode(name)
	if line := "filename*=utf-8''" + rest; len(line) < foldColumn-2 {
		w.putNoSpace(";")
		w.put(line)
		return
	}
	for i := 0; rest != ""; i++ {
		prefix := "filename*" + strconv.Itoa(i) + "*="
		if i == 0 {
			prefix += "utf-8''"
		}
		n := min(len(rest), foldColumn-2-len(prefix))
		// Don't split an encoded octet.
		if n < len(rest) && rest[n-1] == '%' {
			n--
		} else if n < len(rest) && rest[n-2] == '%' {
			n -= 2
		}
		w.putNoSpace(";")
		w.put(prefix + rest[:n])
		rest = rest[n:]
	}
}

// transliterate returns a similar name in ASCII with its extension.
func transliterate(name string) string {
	ext := ""
	if i := strings.LastIndexByte(name, '.'); i > 0 && len(name)-i <= 10 {
		name, ext = name[:i], name[i:]
	}
	name, ext = toASCIILookalike(name), toASCIILookalike(ext)
	if !strings.ContainsFunc(name, func(r rune) bool { return isAlphaNumeric(byte(r)) }) {
		name = "attachment"
	}
	return name + ext
}

// toASCIILookalike removes the marks from letters. Sequences of characters without a similar ASCII
// character become "_".
func toASCIILookalike(s string) string {
	var b strings.Builder
	for _, r := range norm.NFKD.String(s) {
		switch {
		case unicode.Is(unicode.Mn, r), unicode.Is(unicode.Cf, r):
		case unicode.IsSpace(r):
			b.WriteByte(' ')
		case r >= ' ' && r <= '~' && !strings.ContainsRune(`"\=?%/`, r):
			b.WriteRune(r)
		default:
			like := cmp.Or(asciiLookalikes[r], "_")
			if like != "_" || !strings.HasSuffix(b.String(), "_") {
				b.WriteString(like)
			}
		}
	}
	return strings.TrimSpace(b.String())
}

// asciiLookalikes are replacements of characters that norm.NFKD leaves alone.
var asciiLookalikes = func() map[rune]string {
	lookalikes := map[rune]string{
		'ß': "ss", 'æ': "ae", 'Æ': "AE", 'œ': "oe", 'Œ': "OE", 'ø': "o", 'Ø': "O", 'ł': "l", 'Ł': "L", 'đ': "d", 'ð': "d", 'Đ': "D", 'Ð': "D",
		'þ': "th", 'Þ': "Th", 'ı': "i", '€': "EUR",
	}
	for _, dash := range "‐‑‒–—−" {
		lookalikes[dash] = "-"
	}
	for _, quote := range "‘’‚“”„«»" {
		lookalikes[quote] = "'"
	}
	return lookalikes
}()
