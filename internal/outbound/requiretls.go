// SPDX-License-Identifier: Apache-2.0

package outbound

import (
	"strings"

	"github.com/mailstead/mailstead/internal/message"
)

// What a submission may say about TLS (RFC 8689), as it is stored.
const (
	tlsRequired = "required" // REQUIRETLS: rather not sent than sent without
	tlsOptional = "optional" // "TLS-Required: No": rather sent than kept by a policy of the recipient's domain
)

// wishOfTLS reads what a submission says about TLS. The parameter of MAIL
// overrules the field (RFC 8689 §3).
func (s *Submission) wishOfTLS(h message.Header) string {
	if s.RequireTLS {
		return tlsRequired
	}
	if strings.EqualFold(h.Text("TLS-Required"), "No") {
		return tlsOptional
	}
	return ""
}
