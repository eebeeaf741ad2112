// SPDX-License-Identifier: Apache-2.0

package address

import (
	"slices"
	"strconv"
	"strings"
	"unicode"

	"golang.org/x/net/publicsuffix"
)

// DisplayDomain returns a name in Unicode for people to read. A name that may be confused with
// another one stays in A-labels, and so does one without a valid Unicode form. The rule is the
// single-script level of UTS 39 §5.2, and that of browsers for whole names that look like Latin
// ones: letters of most scripts are shown only below a top-level domain that uses the script.
func DisplayDomain(name string) string {
	if !strings.Contains(name, "xn--") {
		return name
	}
	s, err := idnaProfile.ToUnicode(name)
	if err != nil {
		return name
	}
	labels := strings.Split(s, ".")
	for _, l := range labels {
		if !isDistinct(l, labels[len(labels)-1]) {
			return name
		}
	}
	return s
}

// DisplayText returns a text with addresses (the value of From, for example) for people to read,
// with each domain as DisplayDomain returns it. A domain follows an @, or ends in a public suffix.
func DisplayText(text string) string {
	if isASCII(text) {
		return text
	}
	var out strings.Builder
	for rest := text; rest != ""; {
		at := strings.IndexFunc(rest, isDomainRune)
		if at < 0 {
			out.WriteString(rest)
			break
		}
		out.WriteString(rest[:at])
		mailed := at > 0 && (rest[at-1] == '@' || strings.HasSuffix(rest[:at], "＠"))
		rest = rest[at:]
		end := strings.IndexFunc(rest, func(r rune) bool { return !isDomainRune(r) })
		if end < 0 {
			end = len(rest)
		}
		out.WriteString(displayWord(rest[:end], mailed))
		rest = rest[end:]
	}
	return out.String()
}

// isDomainRune reports whether a character can be part of a text that looks like a domain.
func isDomainRune(r rune) bool {
	return unicode.In(r, unicode.L, unicode.M, unicode.N, unicode.Cf) || strings.ContainsRune("-._。．｡·・", r)
}

func displayWord(word string, mailed bool) string {
	if isASCII(word) {
		return word
	}
	name, why := normalizeDomain(word, hostnameRules)
	if _, listed := publicsuffix.PublicSuffix(name); !mailed && (why != "" || !strings.Contains(name, ".") || !listed) {
		return word
	}
	if why != "" { // it is not a domain
		quoted := strconv.QuoteToASCII(word)
		return quoted[1 : len(quoted)-1]
	}
	if shown := DisplayDomain(name); shown != strings.ToLower(word) {
		return shown
	}
	return word
}

// scriptMixes are the writing systems that use several scripts (UTS 39 §5.1).
var scriptMixes = [][]string{{"Han", "Hiragana", "Katakana"}, {"Han", "Bopomofo"}, {"Han", "Hangul"}}

// distinctScripts are scripts that can't be confused with Latin letters, so that they are shown
// below any top-level domain.
var distinctScripts = []string{"Han", "Hiragana", "Katakana", "Bopomofo", "Hangul", "Arabic", "Devanagari", "Sinhala", "Tibetan"}

// scriptTLDs lists, for each script, the Latin top-level domains of countries that use it.
var scriptTLDs = map[string][]string{
	"Armenian": {"am"}, "Bengali": {"bd"}, "Cyrillic": {"bg", "by", "kg", "kz", "me", "mk", "mn", "rs", "ru", "su", "tj", "ua", "uz"},
	"Ethiopic": {"et", "er"}, "Georgian": {"ge"}, "Greek": {"cy", "gr"}, "Hebrew": {"il"}, "Khmer": {"kh"}, "Lao": {"la"}, "Myanmar": {"mm"},
	"Tamil": {"lk"}, "Thaana": {"mv"}, "Thai": {"th"},
}

// isDistinct reports whether a label below a top-level domain can't be confused with labels in
// other letters.
func isDistinct(label, top string) bool {
	if isASCII(label) {
		return true
	}
	scripts, zero := scriptsOf(label), rune(0)
	for _, r := range label {
		if unicode.Is(unicode.Nd, r) { // digits of one kind
			z := zeroDigit(r)
			if zero != 0 && z != zero {
				return false
			}
			zero = z
		}
	}
	switch {
	case len(scripts) == 1 && scripts[0] == "Latin":
		return isCommonLatin(label, top)
	case len(scripts) == 1 && !slices.Contains(distinctScripts, scripts[0]):
		return slices.Equal(scriptsOf(top), scripts) || slices.Contains(scriptTLDs[scripts[0]], top)
	case len(scripts) == 1:
		return true
	}
	return len(scripts) > 1 && slices.ContainsFunc(scriptMixes, func(mix []string) bool {
		return !slices.ContainsFunc(scripts, func(s string) bool { return !slices.Contains(mix, s) })
	})
}

// zeroDigit returns the zero of a digit's set of digits, which are consecutive characters.
func zeroDigit(r rune) rune {
	for value := 0; value < 9 && unicode.Is(unicode.Nd, r-1); value++ {
		r--
	}
	return r
}

// isCommonLatin reports whether all letters of a label belong to common alphabets, in composed
// form. Other letters (phonetic ones, for example) look like the common ones.
func isCommonLatin(label, top string) bool {
	for _, r := range label {
		switch {
		case r < 0x80, r >= 0xdf && r <= 0xff && r != '÷', r >= 0x1ea0 && r <= 0x1ef9, strings.ContainsRune("ơưșț", r):
		case r == 'ı':
			if top != "tr" && top != "az" {
				return false
			}
		case r >= 0x100 && r <= 0x17f && !strings.ContainsRune("ĸŀŉſ", r):
		default:
			return false
		}
	}
	return true
}

// scriptsOf lists the scripts of a label's letters. Characters of all scripts count as a separate
// one, except for digits, the hyphen and the marks of Japanese.
func scriptsOf(label string) (all []string) {
	for _, r := range label {
		s := "Common"
		switch {
		case r == '-' || unicode.Is(unicode.Nd, r):
			continue
		case r == 'ー' || r == '・':
			s = "Katakana"
		case unicode.Is(unicode.Mn, r) && unicode.Is(unicode.Inherited, r) && len(all) > 0 && all[len(all)-1] != "Latin":
			continue
		default:
			for name, table := range unicode.Scripts {
				if unicode.Is(table, r) {
					s = name
					break
				}
			}
		}
		if !slices.Contains(all, s) {
			all = append(all, s)
		}
	}
	return all
}
