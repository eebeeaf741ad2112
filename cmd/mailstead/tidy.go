// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"os"
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

// headroom is how much may be allocated between two collections while there is
// much work. What the service holds is small beside what each message needs for
// a moment: to collect whenever that has doubled takes a quarter of the time.
const headroom = 64 << 20

// tidyMemory gives memory back when work subsides: what only starting needed,
// such as the migrations' buffers, and later what a crowd or an import did. By
// itself the runtime would keep it for minutes, and SQLite for ever. While there
// is much work it lets more gather.
func tidyMemory(ctx context.Context, s *server.Server) {
	tick := time.NewTicker(tidyEvery)
	defer tick.Stop()
	last, collector := allocated(), collecting{percent: usualPercent, fixed: os.Getenv("GOGC") != ""}
	roomy := true // more may have gathered than usual since it was last tidied, as by starting
	begun := false
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
			collector.set(percentFor(live()))
			roomy = roomy || collector.percent > usualPercent
		} else if calm >= calmFor {
			collector.set(usualPercent)
		}
		last = now
		if calm < calmFor || now-tidied < muchWork && !roomy || rest > 0 {
			continue
		}
		if err := s.Shrink(ctx); err != nil && ctx.Err() == nil {
			s.Log.Warn("caches could not be given back", "error", err)
		}
		tidy()
		tidied, roomy = now, false
		if begun { // who comes right after a start is not to wait for it
			rest = tidyRest
		}
		begun = true
	}
}

// usualPercent is the runtime's own (GOGC).
const usualPercent = 100

// percentFor returns by how much the heap may grow before it is collected, as
// GOGC tells it, when so many bytes of it are in use.
func percentFor(live uint64) int {
	return int(max(usualPercent, headroom*100/max(live, headroom/16)))
}

// collecting is how the collector is set.
type collecting struct {
	percent int
	fixed   bool // by GOGC: who sets it knows why
}

// set changes it if that makes a difference: it stops the world for a moment.
func (c *collecting) set(percent int) {
	if c.fixed || percent*4 < c.percent*5 && percent*5 > c.percent*4 {
		return
	}
	debug.SetGCPercent(percent)
	c.percent = percent
}

// allocated is how many bytes were allocated so far.
func allocated() uint64 { return measured("/gc/heap/allocs:bytes") }

// live is how many bytes were in use after the last collection.
func live() uint64 { return measured("/gc/heap/live:bytes") }

func measured(name string) uint64 {
	sample := []metrics.Sample{{Name: name}}
	metrics.Read(sample)
	return sample[0].Value.Uint64()
}

func tidy() {
	runtime.GC() // pools keep what they have for one collection more
	debug.FreeOSMemory()
	unmapProgram()
}
