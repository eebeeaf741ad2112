// SPDX-License-Identifier: Apache-2.0

package domain_test

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/mailstead/mailstead/internal/domain"
)

// FuzzClaims reads untrusted DNS content at our names; records are separated by line feeds.
func FuzzClaims(f *testing.F) {
	for _, seed := range []string{
		"", "mailstead-verification=abc", `"mailstead-verification=abc"`, "MAILSTEAD-VERIFICATION= abc \nx",
		"v=STSv1; id=1", "v=STSv1;id=;id=2", "v=TLSRPTv1; rua=mailto:a@b.test", "v=STSv1\nv=STSv1; id=\xff", "\x00;=;=",
		strings.Repeat("mailstead-verification=a\n", 100),
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		txts := strings.Split(text, "\n")
		tokens := domain.TokensIn(txts)
		if len(tokens) > 64 {
			t.Errorf("%d tokens", len(tokens))
		}
		for token := range tokens {
			if token != strings.ToLower(token) || !strings.Contains(strings.ToLower(text), token) {
				t.Errorf("a token %q out of nothing", token)
			}
		}
		for _, check := range []func([]string) (bool, string){domain.CheckMTASTS, domain.CheckTLSRPT} {
			if ok, problem := check(txts); ok != (problem == "") || len(problem) > 500 || !utf8.ValidString(problem) {
				t.Errorf("%t: %q", ok, problem)
			}
		}
		for _, s := range domain.Shown(txts) {
			if !utf8.ValidString(s) || strings.ContainsAny(s, "\x00\n\r") || len(s) > 4*1024 {
				t.Errorf("shown as %q", s)
			}
		}
	})
}
