// SPDX-License-Identifier: Apache-2.0

package message

import (
	"bytes"
	"regexp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/transform"
	"golang.org/x/text/unicode/norm"

	"github.com/mailstead/mailstead/internal/address"
)

// bidiOverrides are characters that reverse the displayed text.
const bidiOverrides = "\u202d\u202e"

// showsOtherAddress reports whether a text, raw or decoded, shows an address other than those in
// own.
func showsOtherAddress(text string, own []Address) bool {
	for _, t := range []string{text, DecodeWords(text), decodeWordsBytewise(text)} {
		if strings.ContainsAny(t, bidiOverrides) && strings.Contains(t, "@") {
			return true
		}
		for _, seen := range findAddresses(t) {
			if !slices.ContainsFunc(own, func(a Address) bool { return sameAddress(seen, a) }) {
				return true
			}
		}
	}
	return false
}

// joinAddresses removes the spaces around each "@" and before each dot. They don't end an address
// for people, nor for readers that unfold without a space.
func joinAddresses(text string) string {
	parts := strings.Split(text, "@")
	for n := range parts {
		if n > 0 {
			parts[n] = strings.TrimLeftFunc(parts[n], unicode.IsSpace)
		}
		if n < len(parts)-1 {
			parts[n] = strings.TrimRightFunc(parts[n], unicode.IsSpace)
		}
	}
	return strings.ReplaceAll(strings.Join(parts, "@"), " .", ".")
}

// isJustAddress reports whether a text is just this address, perhaps in quotation marks.
func isJustAddress(text string, own Address) bool {
	local, domain, ok := strings.Cut(strings.Trim(DecodeWords(text), " \t\"'<>"), "@")
	return ok && sameAddress(Address{Local: local, Domain: domain}, own)
}

// sameAddress compares two addresses as mail servers do. Apostrophes around the first are quotation
// marks.
func sameAddress(seen, own Address) bool {
	domain, err := address.ParseMailDomain(seen.Domain)
	its, _ := address.ParseMailDomain(own.Domain)
	if err != nil || domain != its {
		return false
	}
	local := address.LocalKey(own.Local)
	return address.LocalKey(seen.Local) == local || address.LocalKey(strings.TrimLeft(seen.Local, "'`")) == local
}

// lookalikeDots look like the dot of a domain: those of RFC 3490 §3.1, a leader, and dots of other
// scripts at the same height or above.
const lookalikeDots = "\u3002\uff0e\uff61\u2024\u00b7\u0701\u0702\u06d4\u0660\u06f0\u2027\u2219\u22c5\ua4f8\ua78f"

// findAddresses returns what a person would take for addresses: text around an "@", followed by a
// dot. Lookalike characters count as the originals, and invisible ones are ignored.
func findAddresses(text string) (list []Address) {
	if !strings.ContainsAny(text, "@＠﹫") {
		return nil
	}
	text = strings.Map(func(c rune) rune {
		if isInvisible(c) {
			return -1
		}
		return c
	}, text)
	text = joinAddresses(strings.Map(func(c rune) rune {
		if strings.ContainsRune(lookalikeDots, c) {
			return '.'
		}
		return c
	}, norm.NFKC.String(text)))
	for at, c := range text {
		if c != '@' {
			continue
		}
		local := text[:at]
		if start := strings.LastIndexFunc(local, endsAddress); start >= 0 {
			_, size := utf8.DecodeRuneInString(local[start:])
			local = local[start+size:]
		}
		domain := text[at+1:]
		if end := strings.IndexFunc(domain, endsAddress); end >= 0 {
			domain = domain[:end]
		}
		domain = strings.Trim(domain, ".!?'`")
		if local == "" && at > 0 && text[at-1] == '@' {
			local = "@"
		}
		if local != "" && (strings.Contains(domain, ".") || strings.HasPrefix(domain, "[")) {
			list = append(list, Address{Local: local, Domain: domain})
		}
	}
	return list
}

// isInvisible reports whether a character is invisible or nearly so, like a thin space.
func isInvisible(c rune) bool {
	return unicode.Is(unicode.Cf, c) || unicode.Is(unicode.Variation_Selector, c) || strings.ContainsRune("\u2006\u2009\u200a\u202f", c)
}

// endsAddress reports whether a character ends an address.
func endsAddress(c rune) bool {
	return unicode.IsSpace(c) || unicode.IsControl(c) || strings.ContainsRune("<>()\",;:\\|{}@", c)
}

// candidateAuthors returns the addresses that any reader may find in From fields.
func candidateAuthors(values [][]byte) (list []Address) {
	for _, value := range values {
		value = value[:min(len(value), maxFromValue)]
		list = append(list, ParseAddresses(value)...)
		text := string(unfold(nil, value))
		list = append(list, findAddresses(text)...)
		list = append(list, findAddresses(DecodeWords(text))...)
		list = append(list, findAddresses(decodeWordsBytewise(text))...)
		if len(list) > MaxAuthors {
			return list[:MaxAuthors]
		}
	}
	return list
}

// hasOnlyClearWords reports whether all readers decode the encoded words of a text alike, or at
// least agree on each "@". That requires a clear end, and a charset compatible with ASCII.
func hasOnlyClearWords(text string) bool {
	for {
		at := strings.Index(text, "=?")
		if at < 0 {
			return true
		}
		text = text[at:]
		cs, _, n := parseEncodedWord(text)
		if n > 0 && !isASCIICompatible(strings.ToLower(cs)) || n == 0 && lenientWordPattern.MatchString(text) {
			return false
		}
		text = text[max(n, 2):]
	}
}

// lenientWordPattern matches what some readers take for an encoded word.
var lenientWordPattern = regexp.MustCompile(`(?s)^=\?[^?]*\?[qQbB]\?.*\?=`)

// isASCIICompatible reports whether readers agree on the ASCII characters of a charset. They don't
// for EBCDIC, nor for charsets that browsers decode to nothing.
func isASCIICompatible(name string) bool {
	switch name {
	case "utf-8", "utf8", "us-ascii", "ascii", "unknown-8bit", "unknown", "x-unknown", "default", "8bit":
		return true
	}
	for _, of := range []string{"iso-8859-", "iso8859-", "iso_8859-", "windows-", "cp125", "cp-125", "x-mac-", "mac"} {
		if strings.HasPrefix(name, of) {
			return true
		}
	}
	t := charsetDecoder(name)
	switch t.(type) {
	case nil, *iso2022, *utf7Decoder:
		return false
	}
	out, _, err := transform.String(t, "@")
	return err == nil && out == "@"
}

// decodeWordsBytewise decodes encoded words like a reader that decodes each word alone and ignores
// non-ASCII bytes. It finds an "@" that others take for the second byte of a character.
func decodeWordsBytewise(text string) string {
	if !strings.Contains(text, "=?") {
		return text
	}
	return decodeWords(text, decodeWordBytewise, false)
}

func decodeWordBytewise(cs string, data []byte) string {
	decoded := toUTF8(cs, data)
	ascii := data
	if strings.HasPrefix(strings.ToLower(cs), "iso-2022-jp") {
		ascii = dropDoubleBytes(data, strings.ContainsRune(decoded, utf8.RuneError))
	}
	ascii = slices.DeleteFunc(slices.Clone(ascii), func(c byte) bool { return c >= utf8.RuneSelf })
	if bytes.Count(ascii, []byte("@")) <= strings.Count(decoded, "@") {
		return decoded
	}
	return string(ascii)
}

// dropDoubleBytes returns ISO-2022-JP (RFC 1468) without its escapes and its two-byte characters,
// which look like ASCII. It keeps these in a broken word, since readers disagree on where they end.
func dropDoubleBytes(data []byte, broken bool) (out []byte) {
	double := false
	for n := 0; n < len(data); n++ {
		if data[n] == '\x1b' {
			end := n + 1
			for end < len(data) && data[end] >= ' ' && data[end] < '0' {
				end++
			}
			kind := string(data[n+1 : min(end+1, len(data))])
			double = !broken && (kind == "$B" || kind == "$@")
			n = end
			continue
		}
		double = double && data[n] > ' ' // two-byte mode ends with the line, and for some readers with a space
		if !double {
			out = append(out, data[n])
		}
	}
	return out
}
