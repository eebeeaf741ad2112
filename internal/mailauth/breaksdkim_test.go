// SPDX-License-Identifier: Apache-2.0

package mailauth

import (
	"strings"
	"testing"
)

func TestBreaks(t *testing.T) {
	c := newCourt(t)
	s, published := signer(t)
	for name, text := range published {
		c.txt(name, text)
	}
	plain := messages()["plain"]
	own, err := s.Sign([]byte(plain))
	if err != nil {
		t.Fatal(err)
	}
	noted := func(msg string) string {
		return string(c.try(msg, outside).AppendField([]byte("Received: from x\r\n"), sealHost)) + msg
	}
	valid := string(own) + plain
	changed := strings.Replace(valid, "there.", "here.", 1)
	without := noted(changed)
	without = without[strings.Index(without, "DKIM-Signature"):]
	for _, tt := range []struct {
		name, msg string
		want      bool
	}{
		{"no signature", plain, false},
		{"no signature, judged", noted(plain), false},
		{"valid", noted(valid), true},
		{"changed before it came", noted(changed), false},
		{"changed, and signed by the list", noted(string(must(s.Sign([]byte(changed)))) + changed), true},
		{"not judged", without, true},
		{"judged by another", strings.Replace(noted(changed), sealHost, "other.test", 1), true},
		{"judged by another above us", "Authentication-Results: other.test; dkim=fail\r\n" + noted(valid), true},
		{"signed since", "DKIM-Signature: v=1\r\n" + noted(changed), true},
		{"more than are verified", noted(strings.Repeat("DKIM-Signature: v=1\r\n", maxSignatures+1) + plain), true},
		{"no answer from the DNS", "Authentication-Results: " + sealHost + "; dkim=temperror\r\n" + changed, true},
		{"only a part of the body is signed", "Authentication-Results: " + sealHost + "; dkim=policy; dkim=fail\r\n" + changed, true},
	} {
		if got := BreaksDKIM([]byte(tt.msg), sealHost); got != tt.want {
			t.Errorf("%s: %v\n%s", tt.name, got, tt.msg)
		}
	}
}

func must(b []byte, err error) []byte {
	if err != nil {
		panic(err)
	}
	return b
}
