// SPDX-License-Identifier: Apache-2.0

package address

import (
	"strings"
	"testing"
)

func TestDomain(t *testing.T) {
	tests := []struct{ in, want, show string }{
		{"Demo.Test", "demo.test", "demo.test"},
		{"demo.test.", "demo.test", "demo.test"},
		{"Bücher.example", "xn--bcher-kva.example", "bücher.example"},
		{"bu\u0308cher.example", "xn--bcher-kva.example", "bücher.example"},
		{"straße.example", "xn--strae-oqa.example", "straße.example"},
		{"XN--STRAE-OQA.Example", "xn--strae-oqa.example", "straße.example"},
		{"ｄｅｍｏ.test", "demo.test", "demo.test"},
		{"1and1.com", "1and1.com", "1and1.com"},
		{"123.test", "123.test", "123.test"},
		{"a.b-c.x1", "a.b-c.x1", "a.b-c.x1"},
	}
	for _, tt := range tests {
		got, err := ParseDomain(tt.in)
		if err != nil || got != tt.want {
			t.Errorf("Domain(%q) = %q, %v; want %q", tt.in, got, err, tt.want)
		}
		if show := DisplayDomain(got); show != tt.show {
			t.Errorf("DisplayDomain(%q) = %q, want %q", got, show, tt.show)
		}
	}
}

func TestDomainRefuses(t *testing.T) {
	for _, in := range []string{
		"", ".", "..", ".demo.test", "demo..test", "demo.test..", "localhost", "com",
		"_dmarc.demo.test", "demo_x.test", "-a.test", "a-.test", "a b.test", "a.test\n", "*.demo.test",
		"192.0.2.1", "::1", "[192.0.2.1]", "1.2.3.4.", "example.123", "１９２.0.2.1", "http://demo.test", "demo.test/x", "a@demo.test",
		"xn--.test", "xn--zzzzzz.test", "a\u200d.test", "אa.test", "\xff.test", "ü_x.test",
		strings.Repeat("a", 64) + ".test", strings.Repeat("a.", 126) + "aa",
		strings.Repeat("ü", 63) + ".test", strings.Repeat("a", 1<<20),
	} {
		got, err := ParseDomain(in)
		if err == nil {
			t.Errorf("Domain(%q) = %q, want an error", in, got)
			continue
		}
		checkFault(t, err, "invalid_domain", in)
	}
}

func TestHostname(t *testing.T) {
	if got, err := ParseHostname("LocalHost"); err != nil || got != "localhost" {
		t.Errorf("Hostname = %q, %v", got, err)
	}
	for _, in := range []string{"127", "a_b", ""} {
		if _, err := ParseHostname(in); err == nil {
			t.Errorf("Hostname(%q) passed", in)
		}
	}
}

func TestPublicSuffix(t *testing.T) {
	for name, want := range map[string]bool{
		"com": true, "co.uk": true, "github.io": true, "test": true, "xn--p1ai": true, "foo.ck": true,
		"demo.test": false, "a.example": false, "bbc.co.uk": false, "www.ck": false, "mail.demo.test": false, "example.invalid": false,
	} {
		if got := IsPublicSuffix(name); got != want {
			t.Errorf("PublicSuffix(%q) = %v", name, got)
		}
	}
}
