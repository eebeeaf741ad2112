// SPDX-License-Identifier: Apache-2.0

package queue_test

import (
	"context"
	"strings"
	"sync"
	"testing"

	"github.com/mailstead/mailstead/internal/queue"
)

// A run that ends for the sake of those in line leaves its place to them.
func TestBacklogGivesTurns(t *testing.T) {
	const backlog = 300
	var mu sync.Mutex
	var carried, before int
	began, finish := make(chan bool), make(chan bool)
	c := &courier{parallel: 1, answer: func(_ context.Context, c *queue.Consignment) []queue.Outcome {
		mu.Lock()
		defer mu.Unlock()
		if c.To[0].Destination == "b.test" {
			before = carried
		} else if carried++; carried == 1 {
			began <- true
			<-finish
		}
		return []queue.Outcome{delivered}
	}}
	eachHouse(t, c, func(t *testing.T, h *house) {
		carried = 0
		h.run()
		for range backlog / 50 {
			h.send(strings.Fields(strings.Repeat("ok@a.test ", 50))...)
		}
		<-began
		h.send("ok@b.test")
		finish <- true
		h.awaitDelivered(backlog + 1)
		if before > 100 {
			t.Errorf("%d went to the long backlog before one to another destination", before)
		}
	}, func(o *queue.Options) { o.Runs, o.Window = 1, 2*backlog })
}
