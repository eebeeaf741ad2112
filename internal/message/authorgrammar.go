// SPDX-License-Identifier: Apache-2.0

package message

import (
	"bytes"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// fromToken is a token of a From field's value.
type fromToken struct {
	kind  byte   // 'a' for a word, '"' for a quoted string, '(' for a comment, else the special character
	text  string // without quotes and brackets
	space bool   // whether space precedes it
}

// parseFrom parses a From field's value by a stricter grammar than RFC 5322 §3.4, on which all mail
// readers agree. ok is false for any other value. other reports whether a name or comment shows
// another address than its own.
func parseFrom(value []byte) (list []Address, other, ok bool) {
	in, ok := unfoldFrom(value)
	if !ok || !hasOnlyClearWords(in) {
		return nil, false, false
	}
	tokens, ok := tokenizeFrom(in)
	if !ok {
		return nil, false, false
	}
	before := ""   // part of a name before an unquoted comma
	split := false // whether a name had such a comma
	for more := true; more; {
		var item []fromToken
		item, tokens, more = nextItem(tokens)
		one, comments, ok := parseFromItem(item)
		switch {
		case !ok || len(list) == MaxAuthors || before != "" && one.Name == "" && !hasAngleAddr(item):
			return nil, false, false
		case one.Local != "":
			raw := before + one.Name
			for _, text := range append(comments, raw) {
				other = other || showsOtherAddress(text, []Address{one})
			}
			if raw == "" && len(comments) > 0 {
				raw = comments[len(comments)-1] // RFC 5322 §3.4: an older form of names
			}
			one.Name, before = DecodeWords(strings.TrimSuffix(raw, ", ")), ""
			list = append(list, one)
		case one.Name != "": // "Doe," of Doe, John <john@example.com>
			before += one.Name + ", "
			split = true
		case len(comments) > 0:
			return nil, false, false
		}
	}
	for _, one := range list {
		if !isASCII(one.Local) && !utf8.ValidString(in) {
			return nil, false, false
		}
	}
	other = other || showsOtherAddress(in, list)
	return list, other, len(list) > 0 && before == "" && !(other && split)
}

// hasAngleAddr reports whether an address is in angle brackets. Then the text before it is a name,
// even if that ends in a comma.
func hasAngleAddr(item []fromToken) bool {
	return slices.ContainsFunc(item, func(t fromToken) bool { return t.kind == '<' })
}

// isSimpleFrom reports whether all readers parse a From field's value alike although a name shows
// another address.
func isSimpleFrom(value []byte) bool {
	brackets := bytes.Count(value, []byte("<")) + bytes.Count(value, []byte("("))
	return brackets < 2 && !bytes.ContainsAny(value, "\\[]\r\n") && !bytes.Contains(value, []byte("=?"))
}

// unfoldFrom returns a From field's value on one line. ok is false if it is too long or has control
// characters.
func unfoldFrom(value []byte) (in string, ok bool) {
	in = strings.ReplaceAll(string(value[:min(len(value), maxFromValue)]), "\r\n", "") // the white space after it remains
	return in, len(value) <= maxFromValue && !strings.ContainsFunc(in, func(c rune) bool { return c < ' ' && c != '\t' || c == 0x7f })
}

// nextItem splits off the tokens before the next comma.
func nextItem(tokens []fromToken) (item, rest []fromToken, more bool) {
	end := slices.IndexFunc(tokens, func(t fromToken) bool { return t.kind == ',' })
	if end < 0 {
		return tokens, nil, false
	}
	return tokens[:end], tokens[end+1:], true
}

// tokenizeFrom splits a From field's value into tokens. ok is false if readers may disagree on
// where they end.
func tokenizeFrom(in string) (tokens []fromToken, ok bool) {
	for pos := 0; pos < len(in); {
		start := pos
		pos += len(in[pos:]) - len(strings.TrimLeft(in[pos:], " \t"))
		if pos == len(in) {
			break
		}
		t := fromToken{kind: in[pos], space: pos > start}
		switch n := strings.IndexAny(in[pos:], " \t\"()<>,:;\\"); {
		case t.kind == '"' || t.kind == '(':
			t.text, n = parseEnclosed(in[pos:])
			if n == 0 {
				return nil, false
			}
			pos += n
		case n == 0:
			pos++
		case n < 0:
			t.kind, t.text, pos = 'a', in[pos:], len(in)
		default:
			t.kind, t.text, pos = 'a', in[pos:pos+n], pos+n
		}
		tokens = append(tokens, t)
	}
	return tokens, true
}

// parseEnclosed parses the quoted string or comment at the start of s. n is its length, or 0 if it
// is not closed.
func parseEnclosed(s string) (text string, n int) {
	var b strings.Builder
	depth := 1
	for i := 1; i < len(s); i++ {
		switch c := s[i]; {
		case c == '"' && s[0] == c:
			return b.String(), i + 1
		case c == '(' && s[0] == c:
			depth++
		case c == ')' && s[0] == '(':
			if depth--; depth == 0 {
				return b.String(), i + 1
			}
		case c == '\\':
			if i++; i == len(s) {
				return "", 0
			}
			b.WriteByte(c)
		}
		b.WriteByte(s[i])
	}
	return "", 0
}

// unescapeToken returns the text of a token without the backslashes of quoted pairs.
func unescapeToken(t fromToken) string {
	if t.kind == 'a' || strings.IndexByte(t.text, '\\') < 0 {
		return t.text
	}
	var b strings.Builder
	for i := 0; i < len(t.text); i++ {
		if t.text[i] == '\\' {
			i++ // parseEnclosed makes sure that a character follows
		}
		b.WriteByte(t.text[i])
	}
	return b.String()
}

// parseFromItem parses the tokens between two commas: an address, with or without a name, or just
// words, which become the name. It doesn't decode names.
func parseFromItem(tokens []fromToken) (one Address, comments []string, ok bool) {
	open := slices.IndexFunc(tokens, func(t fromToken) bool { return t.kind == '<' })
	var words, inner, behind []fromToken
	if open < 0 {
		words = tokens
	} else {
		end := slices.IndexFunc(tokens, func(t fromToken) bool { return t.kind == '>' })
		if end < open {
			return Address{}, nil, false
		}
		words, inner, behind = tokens[:open], tokens[open+1:end], tokens[end+1:]
	}
	var name strings.Builder
	var plain []fromToken
	for n, t := range words {
		switch t.kind {
		case 'a', '"':
			if !t.space && n > 0 && words[n-1].kind != '(' && open >= 0 {
				return Address{}, nil, false
			}
			if t.space && name.Len() > 0 {
				name.WriteByte(' ')
			}
			name.WriteString(unescapeToken(t))
			plain = append(plain, t)
		case '(':
			comments = append(comments, unescapeToken(t))
		default:
			return Address{}, nil, false
		}
	}
	for _, t := range behind {
		if t.kind != '(' {
			return Address{}, nil, false
		}
		comments = append(comments, unescapeToken(t))
	}
	if open < 0 {
		if one, ok = parseAddrSpec(plain); ok {
			return one, comments, true
		}
	} else if one, ok = parseAddrSpec(inner); !ok {
		return Address{}, nil, false
	}
	if !namesNoAddress(plain, one) {
		return Address{}, nil, false
	}
	one.Name = name.String()
	return one, comments, true
}

// namesNoAddress reports whether no reader takes the words of a name for another address. Without
// quotes, some readers use the first "@", some even after decoding words.
func namesNoAddress(words []fromToken, own Address) bool {
	var loose strings.Builder
	for _, t := range words {
		if t.kind != 'a' {
			continue
		}
		if strings.Contains(t.text, "@") && (len(words) > 1 || !isJustAddress(t.text, own)) {
			return false
		}
		loose.WriteString(" " + t.text)
	}
	decoded := DecodeWords(loose.String())
	_, behind, at := strings.Cut(decoded, "@")
	return !at || decoded == loose.String() || !strings.ContainsAny(behind, ".[") || len(words) == 1 && isJustAddress(decoded, own)
}

// parseAddrSpec parses local@domain. All readers agree on odd dots in the local part, but not on
// characters other than those of atoms, nor on encoded words.
func parseAddrSpec(tokens []fromToken) (a Address, ok bool) {
	switch {
	case len(tokens) == 1 && tokens[0].kind == 'a':
		a.Local, a.Domain, ok = strings.Cut(tokens[0].text, "@")
	case len(tokens) == 2 && tokens[0].kind == '"' && tokens[1].kind == 'a' && !tokens[1].space:
		a.Local = tokens[0].text
		a.Domain, ok = strings.CutPrefix(tokens[1].text, "@")
	}
	if !ok || a.Local == "" || a.Domain == "" || strings.Contains(a.Domain, "@") || !utf8.ValidString(a.Local+a.Domain) || strings.Contains(a.Local, "=?") {
		return Address{}, false
	}
	local := a.Local
	if tokens[0].kind == '"' && local == strings.Trim(local, " ") {
		local = strings.ReplaceAll(local, " ", "")
	}
	odd := strings.ContainsFunc(local, func(c rune) bool {
		return c != '.' && (c < utf8.RuneSelf && !isAtext(byte(c)) || c >= utf8.RuneSelf && !unicode.IsPrint(c))
	})
	if odd {
		return Address{}, false
	}
	return a, true
}
