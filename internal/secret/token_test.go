// SPDX-License-Identifier: Apache-2.0

package secret

import (
	"bytes"
	"strings"
	"testing"
	"unicode"
)

func TestToken(t *testing.T) {
	token := NewToken(APIKeyPrefix, 32)
	if !strings.HasPrefix(token, "ms_") || len(token) != 3+58 {
		t.Fatalf("token of %d characters", len(token))
	}
	if !IsWellFormedToken(APIKeyPrefix, token) || !IsWellFormedToken("", NewToken("", 16)) {
		t.Fatal("a fresh token is not well-formed")
	}
	if IsWellFormedToken("whsec_", "whsec_"+token[3:]) {
		t.Error("the checksum does not cover the prefix")
	}
	for i := range len(token) {
		for _, c := range []byte{'a', '7', 'Q', '=', 0, 0xff} {
			if typo := token[:i] + string(c) + token[i+1:]; typo != token && IsWellFormedToken(APIKeyPrefix, typo) {
				t.Fatalf("a typing error at %d went through", i)
			}
		}
		if IsWellFormedToken(APIKeyPrefix, token[:i]) {
			t.Fatalf("cut to %d went through", i)
		}
	}
	if IsWellFormedToken(APIKeyPrefix, APIKeyPrefix+strings.Repeat("a", 1<<20)) {
		t.Error("a huge token went through")
	}
	if NewToken(APIKeyPrefix, 32) == token || bytes.Equal(HashToken(token), HashToken(NewToken(APIKeyPrefix, 32))) {
		t.Error("two tokens are the same")
	}
	if len(HashToken(token)) != 32 || !bytes.Equal(HashToken(token), HashToken(token)) {
		t.Error("hash is not stable")
	}
}

func TestPassword(t *testing.T) {
	seen := map[string]bool{}
	for range 1000 {
		p := NewPassword()
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
