// SPDX-License-Identifier: Apache-2.0

package api

import (
	"net/http"
	"net/netip"

	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/web"
)

var errCleartext = newProblem(http.StatusForbidden, "https_required",
	"The API needs HTTPS. If this request had an API key, replace the key: others may have read it.")

// RejectCleartext rejects an API request that came without TLS. It runs no operation, but records
// that the key was exposed.
func (a *API) RejectCleartext(w http.ResponseWriter, r *http.Request) {
	web.WithRequestID(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		err := a.recordExposedKey(r)
		if err == nil || !fault.Is(err, fault.RateLimited) {
			if err != nil {
				a.Log.ErrorContext(r.Context(), "an API key sent without TLS could not be noted", "request", web.RequestIDFromContext(r.Context()), "err", err)
			}
			err = errCleartext
		}
		w.Header().Set("Connection", "close") // the server doesn't read the rest of the request
		a.writeProblem(w, r, err)
	})).ServeHTTP(w, r)
}

// recordExposedKey records that a request's key was sent without TLS, within the limit of its
// network.
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
	k, noted, err := a.Accounts.RecordCleartextKey(r.Context(), token, from.Addr())
	if noted {
		a.Log.WarnContext(r.Context(), "an API key was sent without TLS", "account", k.Account, "key", k.ID)
	}
	return err
}
