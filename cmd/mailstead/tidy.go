// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"time"

	"github.com/mailstead/mailstead/internal/server"
)

// When memory is given back: after so many intervals in a row in which little
// was allocated, if much was since the last time, and that was a while ago.
const (
	tidyEvery  = 500 * time.Millisecond
	littleWork = 32 << 20 // bytes in an interval
	muchWork   = 256 << 20
	calmFor    = 3
	tidyRest   = 20 // intervals
)

// tidyMemory gives memory back when work subsides: what only starting needed,
// such as the migrations' buffers, and later what a crowd or an import did. By
// itself the runtime would keep it for minutes, and SQLite for ever.
func tidyMemory(ctx context.Context, s *server.Server) {
	tick := time.NewTicker(tidyEvery)
	defer tick.Stop()
	tidy()
	last := allocated()
	for tidied, calm, rest := last, 0, 0; ; {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		now := allocated()
		calm, rest = calm+1, rest-1
		if now-last > littleWork {
			calm = 0
		}
		last = now
		if calm < calmFor || now-tidied < muchWork || rest > 0 {
			continue
		}
		if err := s.Shrink(ctx); err != nil && ctx.Err() == nil {
			s.Log.Warn("caches could not be given back", "error", err)
		}
		tidy()
		tidied, rest = now, tidyRest
	}
}

// allocated is how many bytes were allocated so far.
func allocated() uint64 {
	sample := []metrics.Sample{{Name: "/gc/heap/allocs:bytes"}}
	metrics.Read(sample)
	return sample[0].Value.Uint64()
}

func tidy() {
	runtime.GC() // pools keep what they have for one collection more
	debug.FreeOSMemory()
	unmapProgram()
}
