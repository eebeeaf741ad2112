// SPDX-License-Identifier: Apache-2.0

package mailauth

import (
	"crypto/sha256"
	"math/rand/v2"
	"regexp"
	"strings"
	"testing"
)

// The relaxed form of any body, written in any pieces, follows RFC 6376 §3.4.4. Bare CR and LF
// count as CRLF.
func TestRelaxedBody(t *testing.T) {
	blanks, ends := regexp.MustCompile(`[ \t]+`), strings.NewReplacer("\r\n", "\n", "\r", "\n")
	relaxed := func(body string) string {
		var out strings.Builder
		empty := 0
		for line := range strings.SplitSeq(ends.Replace(body), "\n") {
			line = strings.TrimSuffix(blanks.ReplaceAllString(line, " "), " ")
			if line == "" {
				empty++
				continue
			}
			out.WriteString(strings.Repeat("\r\n", empty) + line + "\r\n")
			empty = 0
		}
		return out.String()
	}
	r := rand.New(rand.NewPCG(1, 2))
	for range 20_000 {
		body := make([]byte, r.IntN(40))
		for i := range body {
			body[i] = "ab  \t\r\n\n\x01\xe4"[r.IntN(10)]
		}
		var b relaxedHash
		b.reset()
		for rest := body; len(rest) > 0; {
			n := 1 + r.IntN(len(rest))
			b.write(rest[:n])
			rest = rest[n:]
		}
		if want := relaxed(string(body)); b.sum() != sha256.Sum256([]byte(want)) {
			t.Fatalf("%q is not hashed as %q", body, want)
		}
	}
}
