// SPDX-License-Identifier: Apache-2.0

package relay

import "github.com/mailstead/mailstead/internal/smtpclient"

// recordTLSFailure records that opportunistic STARTTLS failed with a host, so that mail goes there
// in clear for a while (RFC 7435). Beyond maxRememberedHosts it records nothing: each message then
// tries TLS first.
func (h *hostTable) recordTLSFailure(t hostKey) {
	h.mu.Lock()
	defer h.mu.Unlock()
	now := h.now()
	if len(h.tlsFailures) >= maxRememberedHosts {
		for k, at := range h.tlsFailures {
			if now.Sub(at) >= plaintextTTL {
				delete(h.tlsFailures, k)
			}
		}
	}
	if len(h.tlsFailures) < maxRememberedHosts {
		h.tlsFailures[t] = now
	}
}

// usesPlaintext reports whether STARTTLS failed with a host within plaintextTTL.
func (h *hostTable) usesPlaintext(t hostKey) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	at, ok := h.tlsFailures[t]
	if ok && h.now().Sub(at) >= plaintextTTL {
		delete(h.tlsFailures, t)
		return false
	}
	return ok
}

// clearTLSFailure makes the next connection try STARTTLS again.
func (h *hostTable) clearTLSFailure(t hostKey) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.tlsFailures, t)
}

// choosePlaintext decides whether the next connection is in clear. It never is where TLS is
// required.
func (x *exchange) choosePlaintext() {
	if t := x.target; t.host.TLS == smtpclient.TLSOpportunistic && !t.plaintext {
		t.plaintext = x.agent.hosts.usesPlaintext(t.key())
	}
}
