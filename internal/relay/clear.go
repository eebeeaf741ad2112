// SPDX-License-Identifier: Apache-2.0

package relay

import "github.com/mailstead/mailstead/internal/smtpclient"

// startTLSFailed notes that STARTTLS failed with a host where nobody demands
// TLS, so that mail goes there in clear for a while (RFC 7435). Of hosts beyond
// maxKnown it notes nothing: each message then tries TLS first.
func (h *hosts) startTLSFailed(t terms) {
	h.mu.Lock()
	defer h.mu.Unlock()
	now := h.now()
	if len(h.noTLS) >= maxKnown {
		for k, at := range h.noTLS {
			if now.Sub(at) >= plain {
				delete(h.noTLS, k)
			}
		}
	}
	if len(h.noTLS) < maxKnown {
		h.noTLS[t] = now
	}
}

// inClear reports whether STARTTLS failed with a host a short time ago.
func (h *hosts) inClear(t terms) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	at, ok := h.noTLS[t]
	if ok && h.now().Sub(at) >= plain {
		delete(h.noTLS, t)
		return false
	}
	return ok
}

// tryTLS has the next connection try STARTTLS again.
func (h *hosts) tryTLS(t terms) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.noTLS, t)
}

// choose decides whether the next connection is in clear: never where TLS is
// demanded.
func (s *shift) choose(w *way) {
	if w.host.TLS == smtpclient.Opportunistic && !w.clear {
		w.clear = s.c.hosts.inClear(w.terms())
	}
}
