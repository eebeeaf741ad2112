// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"fmt"
	"testing"

	"github.com/mailstead/mailstead/internal/summary"
)

// Every check result and every rule of the built-in filter has an explanation.
func TestFindings(t *testing.T) {
	for check, results := range map[string][]string{
		"SPF":         {"none", "neutral", "pass", "fail", "softfail", "temperror", "permerror"},
		"DKIM":        {"none", "neutral", "pass", "fail", "policy", "temperror", "permerror"},
		"DMARC":       {"none", "pass", "fail", "temperror", "permerror"},
		"Spam filter": {"none", "ham", "spam"},
	} {
		for _, result := range results {
			for _, f := range explainChecks(summary.CheckResults{SPF: result, DKIM: result, DMARC: result, Spam: result}) {
				if f.Name == check && f.Means == "" {
					t.Errorf("%s %s has no words", check, result)
				}
			}
		}
	}
	got := fmt.Sprintf("%q", spamReasons("DMARC_FAIL=1.5 BAYES_50 DNSBL_bl.example=3 BAYES_01=-2.5 R_DKIM_NA=0.1"))
	want := `[{"DMARC_FAIL" "+1.5" "Nothing shows that it is from its author's domain."} {"BAYES_50" "0" "What you sorted before tells nothing about it."} ` +
		`{"DNSBL_bl.example" "+3" "The host that brought it is on the block list bl.example."} {"BAYES_01" "-2.5" "By what you sorted before, it is almost surely wanted."} {"R_DKIM_NA" "+0.1" ""}]`
	if got != want {
		t.Errorf("got\n%s, want\n%s", got, want)
	}
}
