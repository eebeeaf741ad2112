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
	memoryInterval = 500 * time.Millisecond
	idleAllocation = 32 << 20 // bytes in an interval
	busyAllocation = 256 << 20
	idleIntervals  = 3
	releasePause   = 20 // intervals
)

// gcHeadroom is how much may be allocated between two collections while there is
// much work. What the service holds is small beside what each message needs for
// a moment: to collect whenever that has doubled takes a quarter of the time.
const gcHeadroom = 64 << 20

// releaseMemory gives memory back when work subsides: what only starting needed,
// such as the migrations' buffers, and later what a crowd or an import did. By
// itself the runtime would keep it for minutes, and SQLite for ever. While there
// is much work it lets more gather.
func releaseMemory(ctx context.Context, s *server.Server) {
	tick := time.NewTicker(memoryInterval)
	defer tick.Stop()
	last, collector := allocatedBytes(), gcTuner{percent: defaultGCPercent, fixed: os.Getenv("GOGC") != ""}
	roomy := true // more may have gathered than usual since it was last tidied, as by starting
	begun := false
	for tidied, calm, rest := last, 0, 0; ; {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		now := allocatedBytes()
		calm, rest = calm+1, rest-1
		if now-last > idleAllocation {
			calm = 0
			collector.set(gcPercent(liveBytes()))
			roomy = roomy || collector.percent > defaultGCPercent
		} else if calm >= idleIntervals {
			collector.set(defaultGCPercent)
		}
		last = now
		if calm < idleIntervals || now-tidied < busyAllocation && !roomy || rest > 0 {
			continue
		}
		if err := s.ShrinkMemory(ctx); err != nil && ctx.Err() == nil {
			s.Log.Warn("caches could not be given back", "error", err)
		}
		freeMemory()
		tidied, roomy = now, false
		if begun { // who comes right after a start is not to wait for it
			rest = releasePause
		}
		begun = true
	}
}

// defaultGCPercent is the runtime's own (GOGC).
const defaultGCPercent = 100

// gcPercent returns by how much the heap may grow before it is collected, as
// GOGC tells it, when so many bytes of it are in use.
func gcPercent(live uint64) int {
	return int(max(defaultGCPercent, gcHeadroom*100/max(live, gcHeadroom/16)))
}

// gcTuner is how the collector is set.
type gcTuner struct {
	percent int
	fixed   bool // by GOGC: who sets it knows why
}

// set changes it if that makes a difference: it stops the world for a moment.
func (c *gcTuner) set(percent int) {
	if c.fixed || percent*4 < c.percent*5 && percent*5 > c.percent*4 {
		return
	}
	debug.SetGCPercent(percent)
	c.percent = percent
}

// allocatedBytes is how many bytes were allocated so far.
func allocatedBytes() uint64 { return readMetric("/gc/heap/allocs:bytes") }

// liveBytes is how many bytes were in use after the last collection.
func liveBytes() uint64 { return readMetric("/gc/heap/live:bytes") }

func readMetric(name string) uint64 {
	sample := []metrics.Sample{{Name: name}}
	metrics.Read(sample)
	return sample[0].Value.Uint64()
}

func freeMemory() {
	runtime.GC() // pools keep what they have for one collection more
	debug.FreeOSMemory()
	releaseProgramPages()
}
