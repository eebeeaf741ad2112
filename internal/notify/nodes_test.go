// SPDX-License-Identifier: Apache-2.0

package notify

import (
	"context"
	"log/slog"
	"testing"

	"github.com/mailstead/mailstead/internal/db/dbtest"
)

// A signal reaches the subscribers on other nodes, after the cached data has been dropped there.
func TestNodes(t *testing.T) {
	url, log := dbtest.Postgres(t), slog.New(slog.DiscardHandler)
	one, two := dbtest.Open(t, url), dbtest.Open(t, url)
	h := NewHub(t.Context(), two, log)
	key := Key{Domain, int64(two.NewID())}
	sub := h.Subscribe(key)
	defer sub.Close()
	changed, missed := make(chan Key, 100), make(chan struct{}, 100)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- h.Listen(ctx, two, log, func(k Key) { changed <- k }, func() { missed <- struct{}{} })
	}()
	<-missed // it listens
	<-sub.C  // signals before that may be lost
	other := NewHub(t.Context(), one, log)
	other.Wake(key)
	other.Flush()
	<-sub.C
	for k := range changed {
		if k == key {
			break
		}
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
