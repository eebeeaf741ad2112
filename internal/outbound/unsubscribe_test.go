// SPDX-License-Identifier: Apache-2.0

package outbound

import (
	"net/url"
	"strings"
	"testing"

	"github.com/mailstead/mailstead/internal/address"
)

func TestMailtoURI(t *testing.T) {
	for in, want := range map[string]string{
		"leave@shop.example":                                "mailto:leave@shop.example",
		"a+b@Shop.Example":                                  "mailto:a%2Bb@shop.example",
		`"a@b?c&d"@shop.example`:                            "mailto:%22a%40b%3Fc%26d%22@shop.example",
		"grüße@bücher.example":                              "mailto:gr%C3%BC%C3%9Fe@xn--bcher-kva.example",
		"MAILTO:leave@shop.example?subject=off&Body=please": "MAILTO:leave@shop.example?subject=off&Body=please",
		"mailto:a%2Bb@shop.example":                         "mailto:a%2Bb@shop.example",
		"":                                                  "",
		"mailto:":                                           "",
		"shop.example":                                      "",
		"a@shop.example,b@shop.example":                     "",
		"mailto:a@shop.example,b@shop.example":              "",
		"mailto:a@shop.example?cc=b@shop.example":           "",
		"mailto:a@shop.example?subject=x\r\nBcc: y":         "",
		"mailto:a@shop.example?subject=<x>":                 "",
		"mailto:a%zz@shop.example":                          "",
		"Leave <leave@shop.example>":                        "",
	} {
		got, ok := mailtoURI(in)
		if ok != (want != "") || ok && got != want {
			t.Errorf("%q: %q, %v, want %q", in, got, ok, want)
		}
	}
}

func FuzzUnsubscribe(f *testing.F) {
	f.Add("https://shop.example/leave?who=1", "leave@shop.example")
	f.Add("HTTPS://[::1]:8443/x", "mailto:a%2Bb@shop.example?subject=x")
	f.Add("https://u:p@shop.example/#x", `"a@b"@shop.example`)
	f.Fuzz(func(t *testing.T, link, mailto string) {
		bare := func(uri string) {
			if len(uri) > 900 || strings.ContainsFunc(uri, func(r rune) bool { return r <= ' ' || r > '~' || r == '<' || r == '>' || r == ',' }) {
				t.Errorf("%q can't stand in a header", uri)
			}
		}
		if isOneClickURL(link) {
			bare(link)
			if u, err := url.Parse(link); err != nil || u.Scheme != "https" || u.Host == "" {
				t.Errorf("%q was taken", link)
			}
		}
		if uri, ok := mailtoURI(mailto); ok {
			bare(uri)
			to, _, _ := strings.Cut(uri[len("mailto:"):], "?")
			plain, err := url.PathUnescape(to)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := address.Parse(plain); err != nil {
				t.Errorf("%q is for nobody", uri)
			}
		}
	})
}
