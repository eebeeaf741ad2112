// SPDX-License-Identifier: Apache-2.0

package address

import (
	"errors"
	"strings"
	"testing"

	"github.com/mailstead/mailstead/internal/fault"
)

func TestParse(t *testing.T) {
	long := strings.Repeat("l", 64)
	label := strings.Repeat("d", 61)
	tests := []struct{ in, want, key string }{
		{"alice@demo.test", "alice@demo.test", "alice@demo.test"},
		{"Alice.B@Demo.TEST", "Alice.B@demo.test", "alice.b@demo.test"},
		{"a@demo.test.", "a@demo.test", "a@demo.test"},
		{"!#$%&'*+-/=?^_`{|}~@demo.test", "!#$%&'*+-/=?^_`{|}~@demo.test", "!#$%&'*+-/=?^_`{|}~@demo.test"},
		{`"plain"@demo.test`, "plain@demo.test", "plain@demo.test"},
		{`"A b"@demo.test`, `"A b"@demo.test`, `"a b"@demo.test`},
		{`"\a\ b"@demo.test`, `"a b"@demo.test`, `"a b"@demo.test`},
		{`"a\"\\b"@demo.test`, `"a\"\\b"@demo.test`, `"a\"\\b"@demo.test`},
		{`"a@b"@demo.test`, `"a@b"@demo.test`, `"a@b"@demo.test`},
		{`""@demo.test`, `""@demo.test`, `""@demo.test`},
		{`"a..b"@demo.test`, `"a..b"@demo.test`, `"a..b"@demo.test`},
		{"Zoë@bücher.example", "Zoë@xn--bcher-kva.example", "zoë@xn--bcher-kva.example"},
		{"ZOE\u0308@b\u00dcCHER.example", "ZOE\u0308@xn--bcher-kva.example", "zoë@xn--bcher-kva.example"},
		{"Straße@straße.example", "Straße@xn--strae-oqa.example", "strasse@xn--strae-oqa.example"},
		{"用户@例子.测试", "用户@xn--fsqu00a.xn--0zwm56d", "用户@xn--fsqu00a.xn--0zwm56d"},
		{"a@XN--BCHER-KVA.example", "a@xn--bcher-kva.example", "a@xn--bcher-kva.example"},
		{"a@例子。测试", "a@xn--fsqu00a.xn--0zwm56d", "a@xn--fsqu00a.xn--0zwm56d"},
		{"a\u037eb@demo.test", "a\u037eb@demo.test", `"a;b"@demo.test`}, // NFC makes it a semicolon
		{long + "@demo.test", long + "@demo.test", long + "@demo.test"},
		{"a@" + label + "." + label + "." + label + "." + label + ".abcd",
			"a@" + label + "." + label + "." + label + "." + label + ".abcd",
			"a@" + label + "." + label + "." + label + "." + label + ".abcd"},
		{"a@ab--cd.test", "a@ab--cd.test", "a@ab--cd.test"},
		// Remote addresses beyond the RFCs.
		{"A..b@demo.test", `"A..b"@demo.test`, `"a..b"@demo.test`},
		{".a@demo.test", `".a"@demo.test`, `".a"@demo.test`},
		{"a..@demo.test", `"a.."@demo.test`, `"a.."@demo.test`},
		{"ä..b@demo.test", `"ä..b"@demo.test`, `"ä..b"@demo.test`},
		{strings.Repeat("l", 200) + "@demo.test", strings.Repeat("l", 200) + "@demo.test", strings.Repeat("l", 200) + "@demo.test"},
		{"news@Mail_Out.demo.test", "news@mail_out.demo.test", "news@mail_out.demo.test"},
		{"news@_out.demo.test", "news@_out.demo.test", "news@_out.demo.test"},
	}
	for _, tt := range tests {
		a, err := Parse(tt.in)
		if err != nil {
			t.Errorf("Parse(%q): %v", tt.in, err)
			continue
		}
		if a.String() != tt.want {
			t.Errorf("Parse(%q) = %q, want %q", tt.in, a, tt.want)
		}
		if a.Key() != tt.key {
			t.Errorf("Parse(%q).Key() = %q, want %q", tt.in, a.Key(), tt.key)
		}
	}
}

func TestParseRefuses(t *testing.T) {
	label := strings.Repeat("d", 63)
	for _, in := range []string{
		"", "@", "a", "a@", "@demo.test", "a b@demo.test", "a@b@demo.test", "a@@demo.test",
		".@demo.test", "...@demo.test", "a..b c@demo.test", "a,b@demo.test", "a@demo..test",
		"<a@demo.test>", "a@demo.test>", " a@demo.test", "a@demo.test ", "a@demo.test\r\n",
		"a\r\n@demo.test", "\"a\r\nb\"@demo.test", "\"a\x00b\"@demo.test", "\"a\\\r\"@demo.test",
		`"a@demo.test`, `"a"b@demo.test`, `"a\`, `"a\"@demo.test`, `"`, `"a"`, `"a\é"@demo.test`,
		"a@localhost", "a@demo_x", "a@-_.test", "a@-demo.test", "a@demo-.test", "a@demo.test..", "a@.",
		"a@[192.0.2.1]", "a@[IPv6:2001:db8::1]", "a@192.0.2.1", "a@2001:db8::1", "a@0x7f.1", "a@127.1",
		"@x.test,@y.test:a@demo.test",
		"a\xff@demo.test", "a\u0085@demo.test", "\"a\u2028b\"@demo.test", "a\u202eb@demo.test", "a\u00a0b@demo.test",
		"a@demo\u200b.test\xff", "a@xn--a.example", "a@xn--.example", "a@\u0301a.example",
		strings.Repeat("l", 245) + "@demo.test",
		`"` + strings.Repeat("l ", 122) + `"@demo.test`,
		"a@" + label + "d.test",
		"a@" + strings.Repeat(label+".", 3) + label + "d",
		"aaa@" + strings.Repeat(label[:62]+".", 4),
		"a@" + strings.Repeat("ü", 5000) + ".test",
	} {
		a, err := Parse(in)
		if err == nil {
			t.Errorf("Parse(%q) = %q, want an error", in, a)
			continue
		}
		checkFault(t, err, "invalid_address", in)
	}
}

// checkFault checks the kind and the code, and that the error does not repeat the input.
func checkFault(t *testing.T, err error, code, in string) {
	t.Helper()
	var f *fault.Error
	if !errors.As(err, &f) || f.Kind != fault.Invalid || f.Code != code || f.Message == "" {
		t.Errorf("%q: error %v, want fault.Invalid %s", in, err, code)
		return
	}
	if len(in) > 5 && strings.Contains(f.Message, in) {
		t.Errorf("%q: the message repeats the input: %s", in, f.Message)
	}
}

func TestLiteralError(t *testing.T) {
	_, err := Parse("a@[192.0.2.1]")
	if err == nil || !strings.Contains(err.Error(), "IP address") {
		t.Errorf("error %v does not speak of the IP address", err)
	}
}

func TestBase(t *testing.T) {
	tests := []struct{ in, base, tag string }{
		{"a@demo.test", "a@demo.test", ""},
		{"A+x@demo.test", "A@demo.test", "x"},
		{"a+x+y@demo.test", "a@demo.test", "x+y"},
		{"a+@demo.test", "a@demo.test", ""},
		{"+x@demo.test", "+x@demo.test", ""},
		{`"a b+c d"@demo.test`, `"a b"@demo.test`, "c d"},
		{`"a+c d"@demo.test`, "a@demo.test", "c d"},
		{"a.+x@demo.test", `"a."@demo.test`, "x"},
	}
	for _, tt := range tests {
		a := must(t, tt.in)
		base, tag := a.SplitTag()
		if base.String() != tt.base || tag != tt.tag {
			t.Errorf("Base of %q = %q, %q; want %q, %q", tt.in, base, tag, tt.base, tt.tag)
		}
	}
}

func TestIsUTF8AndDisplay(t *testing.T) {
	if a := must(t, "a@bücher.example"); a.NeedsSMTPUTF8() || a.Display() != "a@bücher.example" {
		t.Errorf("%v: IsUTF8 %v, Display %q", a, a.NeedsSMTPUTF8(), a.Display())
	}
	if a := must(t, "ü@demo.test"); !a.NeedsSMTPUTF8() || a.Display() != "ü@demo.test" {
		t.Errorf("%v: IsUTF8 %v, Display %q", a, a.NeedsSMTPUTF8(), a.Display())
	}
	var none Address
	if none.String() != "" || none.Key() != "" || none.Display() != "" {
		t.Error("the zero Address shows text")
	}
	if s := DisplayDomain("xn--a.example"); s != "xn--a.example" {
		t.Errorf("DisplayDomain of a broken A-label = %q", s)
	}
}

func TestLocalPart(t *testing.T) {
	for _, in := range []string{"alice", "A.b-c_d", "7", "zoë", "zoe\u0308", "हिन्दी", "用户", "b", "bb-x", "-", strings.Repeat("l", 64)} {
		if err := CheckLocalPart(in); err != nil {
			t.Errorf("LocalPart(%q): %v", in, err)
		}
	}
	for _, in := range []string{"", ".a", "a.", "a..b", "a+b", "a b", "a@b", `"a"`, "a'b", "a/b", "a\x00", "a\xff", "\u0301a", "a\u200db", "😀", "a\u037e", strings.Repeat("l", 65), strings.Repeat("é", 33)} {
		err := CheckLocalPart(in)
		if err == nil {
			t.Errorf("LocalPart(%q) passed", in)
			continue
		}
		checkFault(t, err, "invalid_local_part", in)
	}
	for _, in := range []string{"b-x", "B-x", "b-"} {
		checkFault(t, CheckLocalPart(in), "reserved_local_part", in)
	}
}

func must(t testing.TB, s string) Address {
	t.Helper()
	a, err := Parse(s)
	if err != nil {
		t.Fatalf("Parse(%q): %v", s, err)
	}
	return a
}

// Addresses with the same Key may belong to different people.
func TestPersonKey(t *testing.T) {
	for in, want := range map[string]string{
		"Ann@Example.com": "ann@example.com", "ANN+Tag@example.com": "ann+tag@example.com", "Weißer@example.com": "weißer@example.com", "WEISSER@example.com": "weisser@example.com",
		"\u212aim@example.com": "\u212aim@example.com", "İris@example.com": "İris@example.com", "Ärger@example.com": "ärger@example.com", "ΣΑΣ@example.com": "σασ@example.com",
		"\"a B\"@example.com": "\"a b\"@example.com", "ann@Bücher.example": "ann@xn--bcher-kva.example",
	} {
		if got := must(t, in).PersonKey(); got != want {
			t.Errorf("%q is %q, want %q", in, got, want)
		}
	}
	if got := (Address{}).PersonKey(); got != "" {
		t.Errorf("no address is %q", got)
	}
}
