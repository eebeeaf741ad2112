// SPDX-License-Identifier: Apache-2.0

package bounce_test

import (
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/mailstead/mailstead/internal/bounce"
)

// Only a reply that blames the recipient's address suppresses it. A problem with the sender, a
// limit or a policy doesn't.
func TestAnswers(t *testing.T) {
	text, err := os.ReadFile("testdata/answers.tsv")
	if err != nil {
		t.Fatal(err)
	}
	tried := 0
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		columns := strings.Split(strings.TrimSpace(line), "\t")
		if len(columns) != 4 {
			t.Fatalf("%d columns: %s", len(columns), line)
		}
		stage, answer, subtype, blame := columns[0], columns[1], columns[2], columns[3]
		a := bounce.Reply{Stage: strings.Trim(stage, "-")}
		if a.Code, err = strconv.Atoi(answer[:3]); err != nil {
			t.Fatal(line, err)
		}
		a.Text = answer[4:]
		if word, rest, _ := strings.Cut(a.Text, " "); strings.Count(word, ".") == 2 && strings.HasPrefix(word, "4.") || strings.HasPrefix(word, "5.") {
			a.Enhanced, a.Text = word, rest
		}
		v := bounce.Classify(a)
		if v.Subtype != subtype || v.Suppress != (blame == "recipient") || v.Suppress != (v.Category == bounce.ByRecipient) && a.Code >= 500 && blame != "later" {
			t.Errorf("%s %s\n  got %+v, want %s, to blame: %s", stage, answer, v, subtype, blame)
		}
		tried++
	}
	if tried < 150 {
		t.Errorf("only %d answers", tried)
	}
}
