// SPDX-License-Identifier: Apache-2.0

package mailbox

import (
	"slices"

	"github.com/mailstead/mailstead/internal/fault"
)

// SpamFilter is how strictly the spam filter applies to mail to a mailbox. It is never less strict
// for forwarded mail, and a virus is rejected with any setting.
type SpamFilter string

// The kinds of SpamFilter.
const (
	SpamOff     SpamFilter = "off"     // no message is moved to Junk or rejected as spam
	SpamLenient SpamFilter = "lenient" // higher threshold for Junk (summary.SpamResult.LenientThreshold); no message is rejected
	SpamNormal  SpamFilter = "normal"  // the spam filter's own action
	SpamStrict  SpamFilter = "strict"  // lower threshold for Junk (summary.SpamResult.StrictThreshold)
)

// SpamFilters lists the settings, from lenient to strict.
func SpamFilters() []SpamFilter {
	return []SpamFilter{SpamOff, SpamLenient, SpamNormal, SpamStrict}
}

func checkSpamFilter(bad *fault.FieldErrors, f SpamFilter) {
	if !slices.Contains(SpamFilters(), f) {
		bad.Add("spam_filter", "unknown_value", "Give off, lenient, normal or strict.")
	}
}
