// SPDX-License-Identifier: Apache-2.0

package bounce_test

import (
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/mailstead/mailstead/internal/bounce"
)

// Replies at RCPT, of many hosts and in many languages, are classified as permanent or transient.
// The files have one reply per line.
func TestReplies(t *testing.T) {
	for file, want := range map[string]bool{"testdata/hard.txt": true, "testdata/soft.txt": false} {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(text)) {
			code, said, _ := strings.Cut(strings.TrimSpace(line), " ")
			a := bounce.Reply{Stage: bounce.StageRcpt, Text: said}
			a.Code, _ = strconv.Atoi(code[:3])
			if word, _, _ := strings.Cut(strings.TrimPrefix(said, "#"), " "); strings.HasPrefix(word, code[:1]+".") {
				a.Enhanced = word
			}
			if v := bounce.Classify(a); (v.Type == bounce.Permanent) != want || v.Suppress && !want && v.Subtype != bounce.MailboxDisabled {
				t.Errorf("%s: %s %s", strings.TrimSpace(line), v.Type, v.Subtype)
			}
		}
	}
}
