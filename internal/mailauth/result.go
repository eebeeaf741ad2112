// SPDX-License-Identifier: Apache-2.0

package mailauth

// Result is the result of a check, as named in RFC 8601 §2.7.
type Result string

// Results. Not every check uses all of them.
const (
	None          Result = "none"      // nothing to check
	Neutral       Result = "neutral"   // no statement
	Pass          Result = "pass"      //
	Fail          Result = "fail"      //
	SoftFail      Result = "softfail"  // SPF: probably not authorized
	PolicyFailure Result = "policy"    // it verifies, but is not acceptable here
	TempError     Result = "temperror" // temporary error, usually of DNS; a retry may help
	PermError     Result = "permerror" // the record or signature is unusable
)
