// SPDX-License-Identifier: Apache-2.0

package api

import (
	"net/http"
	"net/netip"

	"github.com/mailstead/mailstead/internal/fault"
)

var errCleartext = newProblem(http.StatusForbidden, "https_required",
	"The API needs HTTPS. If this request had an API key, replace the key: others may have read it.")

// RejectCleartext answers a call that came without TLS. It carries nothing out,
// and notes whose key was sent.
func (a *API) RejectCleartext(w http.ResponseWriter, r *http.Request) {
	a.withRequestID(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		err := a.recordExposedKey(r)
		if err == nil || !fault.Is(err, fault.RateLimited) {
			if err != nil {
				a.Log.ErrorContext(r.Context(), "an API key sent without TLS could not be noted", "request", requestID(r.Context()), "err", err)
			}
			err = errCleartext
		}
		w.Header().Set("Connection", "close") // what the client still sends is not read
		a.writeProblem(w, r, err)
	})).ServeHTTP(w, r)
}

// recordExposedKey notes the key of a request, as often as its network may ask.
func (a *API) recordExposedKey(r *http.Request) error {
	token, ok := bearerToken(r)
	if !ok {
		return nil
	}
	if err := a.cleartextLimiter.allow(r); err != nil {
		return err
	}
	from, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return err
	}
	k, noted, err := a.Accounts.RecordExposure(r.Context(), token, from.Addr())
	if noted {
		a.Log.WarnContext(r.Context(), "an API key was sent without TLS", "account", k.Account, "key", k.ID)
	}
	return err
}
