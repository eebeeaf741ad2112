// SPDX-License-Identifier: Apache-2.0

package clienttest

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/mailstead/mailstead/client"
)

func (h *fixture) keys() {
	h.Helper()
	ctx := h.Context()
	end := time.Now().Add(time.Hour).UTC().Truncate(time.Second)
	k, err := h.c.CreateAPIKey(ctx, client.NewAPIKey{Name: "reader", Scopes: []string{"domains.read"}, Domain: "demo.test", AllowedIPs: []string{"127.0.0.1"}, ExpiresAt: &end})
	h.want("making a key", err)
	if !strings.HasPrefix(k.Key, k.Hint) || k.Domain != "demo.test" || !k.ExpiresAt.Equal(end) || fmt.Sprint(k.Scopes, k.AllowedIPs) != "[domains.read] [127.0.0.1/32]" {
		h.Errorf("made %+v", k)
	}
	_, err = h.c.CreateAPIKey(ctx, client.NewAPIKey{Scopes: []string{"x"}})
	refused(h, "a key without a name", err, 422, "validation_failed", "name invalid_name", "scopes[0] unknown_scope")
	reader, _, _ := to(h.T, h.s, k.Key)
	_, err = reader.GetDomain(ctx, h.domain)
	h.want("reading with it", err)
	_, err = reader.ListAPIKeys(ctx, client.Paging{})
	refused(h, "what it may not", err, 403, "missing_scope")
	if !errors.Is(err, client.ErrDenied) {
		h.Errorf("its kind: %v", err)
	}
	if all := collect(h, h.c.APIKeys(ctx)); len(all) != 2 || all[0].ID != k.ID || all[0].Key != "" {
		h.Errorf("the keys are %+v", all)
	}
	h.want("deleting", h.c.DeleteAPIKey(ctx, k.ID))
	_, err = reader.GetDomain(ctx, h.domain)
	refused(h, "the key when gone", err, 401, "invalid_api_key")
	if !errors.Is(err, client.ErrUnknownKey) {
		h.Errorf("its kind: %v", err)
	}
}
