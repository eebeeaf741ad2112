// SPDX-License-Identifier: Apache-2.0

package mailbox

import (
	"slices"

	"github.com/mailstead/mailstead/internal/fault"
)

// SpamFilter is how much a spam filter may say about mail to a mailbox. It never
// says less of what is forwarded, and a virus is refused whatever is chosen.
type SpamFilter string

// The kinds of SpamFilter.
const (
	SpamOff     SpamFilter = "off"     // nothing goes to Junk for it, nor is refused
	SpamLenient SpamFilter = "lenient" // it takes more to get to Junk (digest.SpamResult.LenientThreshold); nothing is refused
	SpamNormal  SpamFilter = "normal"  // what the filter asks for
	SpamStrict  SpamFilter = "strict"  // less is enough (digest.SpamResult.StrictThreshold)
)

// SpamFilters lists them, from soft to hard.
func SpamFilters() []SpamFilter {
	return []SpamFilter{SpamOff, SpamLenient, SpamNormal, SpamStrict}
}

func checkSpamFilter(bad *fault.FieldErrors, f SpamFilter) {
	if !slices.Contains(SpamFilters(), f) {
		bad.Add("spam_filter", "unknown_value", "Give off, lenient, normal or strict.")
	}
}
