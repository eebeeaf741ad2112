// SPDX-License-Identifier: Apache-2.0

package outbound

import (
	"strings"

	"github.com/mailstead/mailstead/internal/message"
)

// What a message may require of TLS (RFC 8689), as stored.
const (
	tlsRequired = "required" // REQUIRETLS: don't send without TLS
	tlsOptional = "optional" // "TLS-Required: No": ignore the TLS policy of the recipient's domain
)

// tlsPreference returns the TLS requirement of a message, also of a forwarded one. The MAIL
// parameter overrides the header field (RFC 8689 §4.1).
func tlsPreference(required bool, h message.Header) string {
	if required {
		return tlsRequired
	}
	if strings.EqualFold(h.Unfolded("TLS-Required"), "No") {
		return tlsOptional
	}
	return ""
}
