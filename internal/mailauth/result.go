// SPDX-License-Identifier: Apache-2.0

package mailauth

// Result is what a check of a message came to, in the words of RFC 8601
// §2.7.
type Result string

// The results. Not every check knows all of them.
const (
	None          Result = "none"      // there is nothing to check
	Neutral       Result = "neutral"   // nothing can be said
	Pass          Result = "pass"      //
	Fail          Result = "fail"      //
	SoftFail      Result = "softfail"  // SPF: probably not, says the domain
	PolicyFailure Result = "policy"    // it verifies, but in a way that is worth nothing here
	TempError     Result = "temperror" // DNS trouble: another time it may be known
	PermError     Result = "permerror" // what was published, or signed, can't be used
)
