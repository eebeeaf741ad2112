// SPDX-License-Identifier: Apache-2.0

package smtpd

// offersRequireTLS reports whether REQUIRETLS is offered (RFC 8689 §2): only on submission, under
// TLS.
func (c *conn) offersRequireTLS() bool { return c.srv.Mode != MX && c.tls != nil }

// parseRequireTLSParam parses the REQUIRETLS parameter of MAIL. known is false for other
// parameters.
func (e *Envelope) parseRequireTLSParam(p param) (r reply, known bool) {
	if p.name != "REQUIRETLS" {
		return reply{}, false
	}
	if p.value != "" {
		return reply{501, "5.5.4", "REQUIRETLS has no value"}, true
	}
	e.RequireTLS = true
	return reply{}, true
}
