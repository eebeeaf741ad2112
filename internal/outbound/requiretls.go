// SPDX-License-Identifier: Apache-2.0

package outbound

import (
	"strings"

	"github.com/mailstead/mailstead/internal/message"
)

// What a message may say about TLS (RFC 8689), as it is stored.
const (
	tlsRequired = "required" // REQUIRETLS: rather not sent than sent without
	tlsOptional = "optional" // "TLS-Required: No": rather sent than kept by a policy of the recipient's domain
)

// tlsPreference reads what a message says about TLS, also one that is forwarded. The
// parameter of MAIL overrules the field (RFC 8689 §4.1).
func tlsPreference(required bool, h message.Header) string {
	if required {
		return tlsRequired
	}
	if strings.EqualFold(h.Text("TLS-Required"), "No") {
		return tlsOptional
	}
	return ""
}
