// SPDX-License-Identifier: Apache-2.0

package api

import (
	"errors"
	"net/http/httptest"
	"testing"

	"github.com/mailstead/mailstead/internal/account"
	"github.com/mailstead/mailstead/internal/fault"
)

// Outside the sandbox its endpoints don't exist.
func TestNoSandbox(t *testing.T) {
	a, p := quiet(), account.Principal{}
	_, list := a.listCaptured(t.Context(), p, &pageParams{})
	_, get := a.getCaptured(t.Context(), p, &idParams{})
	_, raw := a.getCapturedRaw(t.Context(), p, &idParams{})
	_, empty := a.clearCaptured(t.Context(), p, nil)
	_, simulate := a.simulateInbound(httptest.NewRecorder(), httptest.NewRequest("POST", "/", nil), p)
	for _, err := range []error{list, get, raw, empty, simulate} {
		var f *fault.Error
		if !errors.As(err, &f) || f.Kind != fault.NotFound || f.Code != "sandbox_only" {
			t.Errorf("got %v", err)
		}
	}
}
