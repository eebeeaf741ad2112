// SPDX-License-Identifier: Apache-2.0

package secret

import (
	"bytes"
	"strings"
	"testing"
	"unicode"
)

func TestToken(t *testing.T) {
	token := Token(APIKey, 32)
	if !strings.HasPrefix(token, "ms_") || len(token) != 3+58 {
		t.Fatalf("token of %d characters", len(token))
	}
	if !WellFormed(APIKey, token) || !WellFormed("", Token("", 16)) {
		t.Fatal("a fresh token is not well-formed")
	}
	if WellFormed("whsec_", "whsec_"+token[3:]) {
		t.Error("the checksum does not cover the prefix")
	}
	for i := range len(token) {
		for _, c := range []byte{'a', '7', 'Q', '=', 0, 0xff} {
			if typo := token[:i] + string(c) + token[i+1:]; typo != token && WellFormed(APIKey, typo) {
				t.Fatalf("a typing error at %d went through", i)
			}
		}
		if WellFormed(APIKey, token[:i]) {
			t.Fatalf("cut to %d went through", i)
		}
	}
	if WellFormed(APIKey, APIKey+strings.Repeat("a", 1<<20)) {
		t.Error("a huge token went through")
	}
	if Token(APIKey, 32) == token || bytes.Equal(Hash(token), Hash(Token(APIKey, 32))) {
		t.Error("two tokens are the same")
	}
	if len(Hash(token)) != 32 || !bytes.Equal(Hash(token), Hash(token)) {
		t.Error("hash is not stable")
	}
}

func TestPassword(t *testing.T) {
	seen := map[string]bool{}
	for range 1000 {
		p := Password()
		if seen[p] || len(p) != 23 || strings.Count(p, "-") != 3 {
			t.Fatalf("seen before, or of another form (%d characters)", len(p))
		}
		seen[p] = true
		for _, is := range []func(rune) bool{unicode.IsUpper, unicode.IsLower, unicode.IsDigit, unicode.IsPunct} {
			if !strings.ContainsFunc(p, is) {
				t.Fatal("a kind of character is missing")
			}
		}
		if strings.ContainsAny(p, "0O1lI") {
			t.Fatal("holds letters that look alike")
		}
	}
}
