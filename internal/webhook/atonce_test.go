// SPDX-License-Identifier: Apache-2.0

package webhook_test

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/mailstead/mailstead/internal/db/dbtest"
	"github.com/mailstead/mailstead/internal/event"
	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/webhook"
)

// An account never exceeds its maximum of webhooks, even with concurrent calls.
func TestCreateAtOnce(t *testing.T) {
	dbtest.EachURL(t, func(t *testing.T, url string) {
		h := build(t, url)
		var made atomic.Int64
		var wg sync.WaitGroup
		begin := make(chan struct{})
		for i := range 200 {
			wg.Go(func() {
				<-begin
				_, _, err := h.hooks.Create(t.Context(), h.account, webhook.Spec{URL: fmt.Sprintf("https://a.example/%d", i), Kinds: []string{event.Bounce}})
				switch {
				case err == nil:
					made.Add(1)
				case !fault.Is(err, fault.Conflict):
					t.Error(err)
				}
			})
		}
		close(begin)
		wg.Wait()
		if made.Load() != webhook.MaxPerAccount {
			t.Errorf("%d webhooks were made", made.Load())
		}
	})
}
