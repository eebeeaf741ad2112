// SPDX-License-Identifier: Apache-2.0

package address

import (
	"strings"
	"testing"
)

func TestParseNamed(t *testing.T) {
	tests := []struct{ in, name, addr string }{
		{"a@demo.test", "", "a@demo.test"},
		{"  a@demo.test ", "", "a@demo.test"},
		{"<a@demo.test>", "", "a@demo.test"},
		{"Alice <a@demo.test>", "Alice", "a@demo.test"},
		{"Alice<a@demo.test>", "Alice", "a@demo.test"},
		{"Alice B. (Demo) <a@demo.test>", "Alice B. (Demo)", "a@demo.test"},
		{`"Demo, Inc." <a@demo.test>`, "Demo, Inc.", "a@demo.test"},
		{`"say \"hi\" \\o/ <b@x.test>" <a@demo.test>`, `say "hi" \o/ <b@x.test>`, "a@demo.test"},
		{"Zoë 😀 <zoë@bücher.example>", "Zoë 😀", "zoë@xn--bcher-kva.example"},
		{`Quoted <"a <b"@demo.test>`, "Quoted", `"a <b"@demo.test`},
		{`"a b"@demo.test`, "", `"a b"@demo.test`},
		{`"" <a@demo.test>`, "", "a@demo.test"},
		{"a@demo.test <a@demo.test>", "a@demo.test", "a@demo.test"},
		{"O'Neil <a@demo.test>", "O'Neil", "a@demo.test"},
	}
	for _, tt := range tests {
		n, err := ParseNameAddr(tt.in)
		if err != nil || n.Name != tt.name || n.Address.String() != tt.addr {
			t.Errorf("ParseNamed(%q) = %q %q, %v; want %q %q", tt.in, n.Name, n.Address, err, tt.name, tt.addr)
		}
	}
}

func TestParseNamedRefuses(t *testing.T) {
	for _, in := range []string{
		"", "Alice", "Alice a@demo.test", "<>", "Alice <>", "Alice <a@demo.test", "a@demo.test>", "Alice <<a@demo.test>>",
		"a@demo.test, b@demo.test", "A <a@demo.test>, B <b@demo.test>", "a@demo.test, B <b@demo.test>", "A, B <b@demo.test>",
		"Group: a@demo.test;", "Group: A <a@demo.test>;", "A; <a@demo.test>", `A "B" C <a@demo.test>`, `"A" B <a@demo.test>`, `"A <a@demo.test>`, `"A\" <a@demo.test>`,
		"A\r\nBcc: x@x.test <a@demo.test>", "A\n<a@demo.test>", "A\t<a@demo.test>", "\"A\r\n\" <a@demo.test>", "A <a@demo.test\r\n>", "A <\na@demo.test>",
		"A\x00 <a@demo.test>", "A\u0085 <a@demo.test>", "A\u202e <a@demo.test>", "A\xff <a@demo.test>",
		"A <a@demo.test> x", "A < a@demo.test>", "A <a@localhost>",
		strings.Repeat("n", 513) + " <a@demo.test>", strings.Repeat("<", 1<<16) + ">",
	} {
		n, err := ParseNameAddr(in)
		if err == nil {
			t.Errorf("ParseNamed(%q) = %q %q, want an error", in, n.Name, n.Address)
			continue
		}
		checkFault(t, err, "invalid_address", in)
	}
}
