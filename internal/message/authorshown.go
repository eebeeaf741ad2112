// SPDX-License-Identifier: Apache-2.0

package message

import (
	"regexp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/emersion/go-message/charset"
	"golang.org/x/text/unicode/norm"

	"github.com/mailstead/mailstead/internal/address"
)

// bidiOverrides turn the order of the text that is shown.
const bidiOverrides = "\u202d\u202e"

// showsOther reports whether a text, as it stands or decoded, shows an address
// that is none of these. folded says that some of its spaces may be a fold.
func showsOther(text string, own []Address, folded bool) bool {
	decoded := DecodeWords(text)
	if decoded != text || folded || strings.ContainsFunc(text, unseen) {
		// To readers that decode before they parse, and to those that unfold to
		// nothing, spaces around "@" mean nothing.
		decoded = joined(decoded)
	}
	for _, t := range []string{text, decoded} {
		if strings.ContainsAny(t, bidiOverrides) && strings.Contains(t, "@") {
			return true
		}
		for _, seen := range addressesIn(t) {
			if !slices.ContainsFunc(own, func(a Address) bool { return same(seen, a) }) {
				return true
			}
		}
	}
	return false
}

// joined takes the spaces around each "@" out of a text.
func joined(text string) string {
	parts := strings.Split(text, "@")
	for n := range parts {
		if n > 0 {
			parts[n] = strings.TrimLeft(parts[n], " \t")
		}
		if n < len(parts)-1 {
			parts[n] = strings.TrimRight(parts[n], " \t")
		}
	}
	return strings.Join(parts, "@")
}

// isAddress reports whether a text is nothing but this address, perhaps within
// quotation marks.
func isAddress(text string, own Address) bool {
	local, domain, ok := strings.Cut(strings.Trim(DecodeWords(text), " \t\"'<>"), "@")
	return ok && same(Address{Local: local, Domain: domain}, own)
}

// same compares two addresses as mail servers do; apostrophes around the first are
// quotation marks.
func same(seen, own Address) bool {
	domain, err := address.Domain(seen.Domain)
	its, _ := address.Domain(own.Domain)
	if err != nil || domain != its {
		return false
	}
	local := address.LocalKey(own.Local)
	return address.LocalKey(seen.Local) == local || address.LocalKey(strings.TrimLeft(seen.Local, "'`")) == local
}

// addressesIn finds what a person would take for an address: text without space
// around an "@", with a dot behind it. Characters that only look like these count
// for them, and those that are not seen do not count.
func addressesIn(text string) (list []Address) {
	if !strings.ContainsAny(text, "@＠﹫") {
		return nil
	}
	text = strings.Map(func(c rune) rune {
		switch {
		case unseen(c):
			return -1
		case c == '。' || c == '．' || c == '｡' || c == '․': // RFC 3490 §3.1, and a leader
			return '.'
		}
		return c
	}, norm.NFKC.String(text))
	for at, c := range text {
		if c != '@' {
			continue
		}
		local := text[:at]
		if start := strings.LastIndexFunc(local, apart); start >= 0 {
			_, size := utf8.DecodeRuneInString(local[start:])
			local = local[start+size:]
		}
		domain := text[at+1:]
		if end := strings.IndexFunc(domain, apart); end >= 0 {
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

// unseen reports whether a character is not shown.
func unseen(c rune) bool {
	return unicode.Is(unicode.Cf, c) || unicode.Is(unicode.Variation_Selector, c)
}

// apart reports whether a character ends an address.
func apart(c rune) bool {
	return unicode.IsSpace(c) || unicode.IsControl(c) || strings.ContainsRune("<>()\",;:\\|{}@", c)
}

// candidates are the addresses that some reader may find in From fields.
func candidates(values [][]byte) (list []Address) {
	for _, value := range values {
		value = value[:min(len(value), maxFrom)]
		list = append(list, ParseAddresses(value)...)
		text := string(unfold(nil, value))
		list = append(list, addressesIn(text)...)
		list = append(list, addressesIn(DecodeWords(text))...)
		if len(list) > MaxAuthors {
			return list[:MaxAuthors]
		}
	}
	return list
}

// plainWords reports whether every reader sees the same in the encoded words of a
// text, or at least no "@" where others see none: it knows what they end with, and
// their charset, if that is not made of ASCII.
func plainWords(text string) bool {
	for {
		at := strings.Index(text, "=?")
		if at < 0 {
			return true
		}
		text = text[at:]
		cs, _, n := encodedWord(text)
		if n > 0 && !knownCharset(strings.ToLower(cs)) || n == 0 && lenientWord.MatchString(text) {
			return false
		}
		text = text[max(n, 2):]
	}
}

// lenientWord is what some readers take for an encoded word.
var lenientWord = regexp.MustCompile(`(?s)^=\?[^?]*\?[qQbB]\?.*\?=`)

func knownCharset(name string) bool {
	switch name {
	case "utf-8", "utf8", "us-ascii", "ascii", "unknown-8bit", "unknown", "x-unknown", "default", "8bit":
		return true
	}
	for _, of := range []string{"iso-8859-", "iso8859-", "iso_8859-", "windows-", "cp125", "cp-125", "x-mac-", "mac"} {
		if strings.HasPrefix(name, of) {
			return true
		}
	}
	_, err := charset.Reader(name, strings.NewReader(""))
	return err == nil
}
