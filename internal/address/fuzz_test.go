// SPDX-License-Identifier: Apache-2.0

package address

import (
	"bufio"
	"os"
	"strings"
	"testing"
	"unicode/utf8"
)

// seed adds the lines of a file in testdata to the corpus, in which \r, \n, \t and \0 are escaped.
func seed(f *testing.F, file string) {
	f.Helper()
	r, err := os.Open(file)
	if err != nil {
		f.Fatal(err)
	}
	defer func() { _ = r.Close() }()
	unescape := strings.NewReplacer(`\r`, "\r", `\n`, "\n", `\t`, "\t", `\0`, "\x00")
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		f.Add(unescape.Replace(lines.Text()))
	}
	if err := lines.Err(); err != nil {
		f.Fatal(err)
	}
}

func FuzzParse(f *testing.F) {
	seed(f, "testdata/addresses.txt")
	f.Fuzz(func(t *testing.T, s string) {
		a, err := Parse(s)
		if err != nil {
			checkFault(t, err, "invalid_address", s)
			return
		}
		checkAddress(t, a)
		base, _ := a.SplitTag()
		checkAddress(t, base)
	})
}

// checkAddress checks the invariants of an Address.
func checkAddress(t *testing.T, a Address) {
	t.Helper()
	s := a.String()
	if again, err := Parse(s); err != nil || again != a {
		t.Errorf("Parse(%q) = %q, %v; want the same", s, again, err)
	}
	if !utf8.ValidString(s) || strings.ContainsAny(s, "\r\n\x00") || len(s) > MaxAddress {
		t.Errorf("%q is not fit to be sent", s)
	}
	key := LocalKey(a.Local)
	if again := LocalKey(key); again != key {
		t.Errorf("key of %q is %q, and its key is %q", a.Local, key, again)
	}
	if !isASCII(a.Domain) || strings.ToLower(a.Domain) != a.Domain {
		t.Errorf("domain %q is not in lowercase ASCII", a.Domain)
	}
	if shown, err := Parse(a.Display()); err != nil || shown != a {
		t.Errorf("%q is shown as %q, which reads as %q, %v", s, a.Display(), shown, err)
	}
}

func FuzzParseNamed(f *testing.F) {
	seed(f, "testdata/addresses.txt")
	seed(f, "testdata/named.txt")
	f.Fuzz(func(t *testing.T, s string) {
		n, err := ParseNameAddr(s)
		if err != nil {
			checkFault(t, err, "invalid_address", s)
			return
		}
		checkAddress(t, n.Address)
		if !isSafeText(n.Name) || len(n.Name) > MaxDisplayName {
			t.Errorf("name %q", n.Name)
		}
		text := n.Address.String()
		if n.Name != "" {
			text = quoteText(n.Name) + " <" + text + ">"
		}
		if len(text) > maxInput {
			return
		}
		if again, err := ParseNameAddr(text); err != nil || again != n {
			t.Errorf("ParseNamed(%q) = %q, %v; want the same", n, again, err)
		}
	})
}

func FuzzDomain(f *testing.F) {
	seed(f, "testdata/domains.txt")
	f.Fuzz(func(t *testing.T, s string) {
		name, err := ParseDomain(s)
		if err != nil {
			checkFault(t, err, "invalid_domain", s)
			return
		}
		if again, err := ParseDomain(name); err != nil || again != name {
			t.Errorf("Domain(%q) = %q, %v; want the same", name, again, err)
		}
		if again, err := ParseDomain(DisplayDomain(name)); err != nil || again != name {
			t.Errorf("Domain(%q) = %q, %v; want %q", DisplayDomain(name), again, err, name)
		}
		if len(name) > MaxDomain {
			t.Errorf("%q is too long", name)
		}
		IsPublicSuffix(name)
	})
}

func FuzzLocalPart(f *testing.F) {
	seed(f, "testdata/addresses.txt")
	f.Fuzz(func(t *testing.T, s string) {
		if err := CheckLocalPart(s); err != nil {
			return
		}
		a, err := Parse(s + "@demo.test")
		if err != nil || a.Local != s {
			t.Errorf("a mailbox %q would have the address %q, %v", s, a, err)
		}
	})
}

func BenchmarkParse(b *testing.B) {
	for b.Loop() {
		if _, err := Parse("alice.liddell+news@mail.demo.test"); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkParseInternational(b *testing.B) {
	for b.Loop() {
		if _, err := Parse("zoë@bücher.example"); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkKey(b *testing.B) {
	a := must(b, "Alice.Liddell+news@mail.demo.test")
	for b.Loop() {
		a.Key()
	}
}

func BenchmarkParseNamed(b *testing.B) {
	for b.Loop() {
		if _, err := ParseNameAddr("Alice Liddell <alice@demo.test>"); err != nil {
			b.Fatal(err)
		}
	}
}

// DisplayText only changes domains, and is idempotent.
func FuzzDisplayText(f *testing.F) {
	for _, s := range []string{"Ann <ann@demo.test>", "id@аррӏе.com", "x@APPLE\u200d.com", "https://раypal.com/?a=b", "@é.@", "\xff"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		shown := DisplayText(text)
		if again := DisplayText(shown); again != shown {
			t.Errorf("%q is shown as %q, then as %q", text, shown, again)
		}
	})
}
