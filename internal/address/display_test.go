// SPDX-License-Identifier: Apache-2.0

package address

import "testing"

func TestDisplayDomain(t *testing.T) {
	for in, want := range map[string]string{
		"demo.test":      "demo.test",
		"bücher.example": "bücher.example",
		"việt.example":   "việt.example",
		"łódź.pl":        "łódź.pl",
		"пример.рф":      "пример.рф",
		"пример.ru":      "пример.ru",
		"παράδειγμα.gr":  "παράδειγμα.gr",
		"日本語ひらがなカタカナー.jp": "日本語ひらがなカタカナー.jp",
		"한국어.com":            "한국어.com",
		"مثال.com":           "مثال.com",
		"उदाहरण.com":         "उदाहरण.com",
		"ısparta.com.tr":     "ısparta.com.tr",
		"xn--bcher-kva.com":  "bücher.com",
		"xn--zzzzzz.example": "xn--zzzzzz.example", // no valid Unicode form

		"аррӏе.com":         "xn--80ak6aa92e.com", // all of it Cyrillic
		"пример.com":        "xn--e1afmkfd.com",
		"раypal.com":        "xn--ypal-43d9g.com", // Cyrillic and Latin
		"раypal.ru":         "xn--ypal-43d9g.ru",
		"gοοgle.com":        "xn--ggle-0nda.com", // Greek and Latin
		"ɡoogle.com":        "xn--oogle-qmc.com", // phonetic letter
		"ısparta.com":       "xn--sparta-o9a.com",
		"comノpath.example":  "xn--compath-v04f.example", // a slash
		"аррӏе.пример.com":  "xn--80ak6aa92e.xn--e1afmkfd.com",
		"www.аррӏе.example": "www.xn--80ak6aa92e.example",
		"৭8.example":        "xn--8-56d.example", // two kinds of digits
		"ꭺꮓ.com":            "xn--g9d4c.com",     // Cherokee
		"a·b.example":       "xn--ab-0ea.example",
	} {
		name := in
		if !isASCII(in) {
			var err error
			if name, err = idnaProfile.ToASCII(in); err != nil {
				t.Errorf("%q: %v", in, err)
				continue
			}
		}
		if got := DisplayDomain(name); got != want {
			t.Errorf("%q (%s) is shown as %q, want %q", in, name, got, want)
		}
	}
}

func TestDisplayText(t *testing.T) {
	for in, want := range map[string]string{
		"Ann <ann@demo.test>":                     "Ann <ann@demo.test>",
		"Ann <ann@bücher.example>":                "Ann <ann@bücher.example>",
		"Apple <id@аррӏе.com>, b@раypal.test":     "Apple <id@xn--80ak6aa92e.com>, b@xn--ypal-43d9g.test",
		"id@аррӏе.com <x@atk.example>":            "id@xn--80ak6aa92e.com <x@atk.example>",
		"аррӏе.com <x@atk.example>":               "xn--80ak6aa92e.com <x@atk.example>",
		"https://раypal.com/?a=b":                 "https://xn--ypal-43d9g.com/?a=b",
		"Иван И.Иванов <ivan@xn--80ak6aa92e.com>": "Иван И.Иванов <ivan@xn--80ak6aa92e.com>",
		"Иван <иван@пример.рф>":                   "Иван <иван@пример.рф>",
		"x@APPLE\u200d.com":                       `x@APPLE\u200d.com`,
		"x@аpple。com":                             "x@xn--pple-43d.com",
		"x＠аpple.com":                             "x＠xn--pple-43d.com",
		"x@ａpple.com":                             "x@apple.com",
		"Ünal":                                    "Ünal",
		"":                                        "",
		"@":                                       "@",
		"é@":                                      "é@",
		"\xff@\xffé":                              "\xff@\xffé",
	} {
		if got := DisplayText(in); got != want {
			t.Errorf("%q is shown as %q, want %q", in, got, want)
		}
	}
}
