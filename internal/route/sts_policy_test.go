// SPDX-License-Identifier: Apache-2.0

package route

import (
	"fmt"
	"strings"
	"testing"
)

func TestParsePolicy(t *testing.T) {
	good := map[string]string{
		"version: STSv1\r\nmode: enforce\r\nmx: mail.example.com\r\nmx: *.example.net\r\nmax_age: 604800\r\n": "enforce 168h0m0s [mail.example.com *.example.net]",
		"version: STSv1\nmode: testing\nmx: a.test\nmax_age: 0":                                               "testing 0s [a.test]",
		"max_age:86400\nmode:none\nversion:STSv1\n":                                                           "none 24h0m0s []",
		"version: STSv1\nmode: none\nmx: a.test\nmax_age: 1":                                                  "none 1s [a.test]",
		"version: STSv1\nmode: enforce\nmx: A.TEST.\nmax_age: 9999999999":                                     "enforce 8766h0m0s [a.test]",
		"version: STSv1\nmode: enforce\nmode: none\nmx: a.test\nmax_age: 5\nmax_age: 6\nx: y":                 "enforce 5s [a.test]",
		"version: STSv1 \t\n\nmode:   enforce\nmx:\ta.test\nmax_age: 5  \n\n":                                 "enforce 5s [a.test]",
	}
	for text, want := range good {
		p, err := ParseSTSPolicy(text)
		if err != nil {
			t.Errorf("%q: %v", text, err)
			continue
		}
		if got := fmt.Sprint(p.Mode, " ", p.MaxAge, " ", p.MX); got != want {
			t.Errorf("%q: %s, want %s", text, got, want)
		}
	}
	for _, text := range []string{
		"", "version: STSv1", "mode: enforce\nmx: a.test\nmax_age: 5", "version: STSv2\nmode: enforce\nmx: a.test\nmax_age: 5",
		"version: STSv1\nmode: Enforce\nmx: a.test\nmax_age: 5", "version: STSv1\nmode: enforce\nmax_age: 5",
		"version: STSv1\nmode: enforce\nmx: a.test", "version: STSv1\nmode: enforce\nmx: a.test\nmax_age: -5",
		"version: STSv1\nmode: enforce\nmx: a.test\nmax_age: 99999999999", "version: STSv1\nmode: enforce\nmx: a b\nmax_age: 5",
		"version: STSv1\nmode: enforce\nmx: *.*.test\nmax_age: 5", "version: STSv1\nmode: enforce\nmx: *\nmax_age: 5",
		"version: STSv1\nmode: enforce\nmx: a.test\nmax_age: 5\nhello", "version: STSv1\nmode: testing\nmx: \nmax_age: 5",
		"<html>version: STSv1</html>", "version: STSv1\nmode: enforce\nmx: a.test\nmax_age: 5\n" + strings.Repeat("\n", 64<<10),
	} {
		if p, err := ParseSTSPolicy(text); err == nil {
			t.Errorf("%q: %+v", text[:min(len(text), 80)], p)
		}
	}
}

func TestAllows(t *testing.T) {
	p := &STSPolicy{MX: []string{"mail.example.com", "*.example.net"}}
	for host, want := range map[string]bool{
		"mail.example.com": true, "a.example.net": true, "example.net": false, "a.b.example.net": false,
		"example.com": false, "xmail.example.com": false, "net": false, "": false,
	} {
		if p.Allows(host) != want {
			t.Errorf("%q: not %v", host, want)
		}
	}
}

func TestParsePolicyID(t *testing.T) {
	for id, records := range map[string][]string{
		"20160831085700Z":       {"v=STSv1; id=20160831085700Z;"},
		"abc":                   {"something else", "v=STSv1;id=abc"},
		"a1":                    {"v=STSv1 ; x=y; id=a1 ; id=b2"},
		strings.Repeat("a", 32): {"v=STSv1; id=" + strings.Repeat("a", 32)},
	} {
		if got := parseSTSRecord(records); got != id {
			t.Errorf("%q: %q", records, got)
		}
	}
	for _, records := range [][]string{
		{}, {"v=STSv1"}, {"v=STSv1; id=a b"}, {"v=STSv1; id = a"}, {"v=STSv1; ID=a"}, {"V=STSv1; id=a"}, {"v=STSv1; id="}, {"v=STSv1; id=" + strings.Repeat("a", 33)}, {"v=stsv1; id=a"},
		{"v=STSv1; id=a", "v=STSv1; id=a"}, {"id=a; v=STSv1"}, {"v=STSv10; id=a"}, {"v=STSv1; id=\x00"},
	} {
		if got := parseSTSRecord(records); got != "" {
			t.Errorf("%q: %q", records, got)
		}
	}
}

func FuzzPolicy(f *testing.F) {
	f.Add("version: STSv1\r\nmode: enforce\r\nmx: mail.example.com\r\nmx: *.example.net\r\nmax_age: 604800\r\n", "v=STSv1; id=1;")
	f.Add("version: STSv1\nmode: none\nmax_age: 99999999999\nx", "v=STSv1;;=; id=é")
	f.Fuzz(func(t *testing.T, text, record string) {
		if id := parseSTSRecord([]string{record}); len(id) > 32 {
			t.Errorf("id %q", id)
		}
		p, err := ParseSTSPolicy(text)
		if err != nil {
			return
		}
		if p.MaxAge < 0 || p.MaxAge > maxPolicyAge || p.Mode != STSNone && len(p.MX) == 0 || len(p.text()) > 3*len(text)+100 {
			t.Fatalf("%+v", p)
		}
		again, err := parseSTSPolicyText(p.text())
		if err != nil || fmt.Sprint(again) != fmt.Sprint(p) {
			t.Errorf("kept as %q: %+v, %v", p.text(), again, err)
		}
		for _, m := range p.MX {
			if host := strings.Replace(m, "*", "x", 1); !p.Allows(host) {
				t.Errorf("%s is not allowed", host)
			}
		}
	})
}
