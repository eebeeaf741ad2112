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

// When to release memory: after idleIntervals consecutive intervals with few allocations, if much
// was allocated since the last release, and that was at least releasePause ago.
const (
	memoryInterval = 500 * time.Millisecond
	idleAllocation = 32 << 20 // bytes in an interval
	busyAllocation = 256 << 20
	idleIntervals  = 3
	releasePause   = 20 // intervals
)

// gcHeadroom is how much may be allocated between two collections under load, in bytes. The
// service's live data is small compared with the temporary data of messages: a collection at each
// doubling costs a quarter of the time.
const gcHeadroom = 64 << 20

// releaseMemoryWhenIdle releases memory when load drops: that of the start, such as the schema
// migrations' buffers, and later that of a burst or an import. On its own, the runtime would keep
// it for minutes, and SQLite forever. Under load it allows a larger heap.
func releaseMemoryWhenIdle(ctx context.Context, s *server.Server) {
	tick := time.NewTicker(memoryInterval)
	defer tick.Stop()
	last, collector := allocatedBytes(), gcTuner{percent: defaultGCPercent, fixed: os.Getenv("GOGC") != ""}
	roomy := true // memory may have accumulated, for example at the start
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
			collector.set(gcPercent(liveHeapBytes()))
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
		if begun { // no pause after the first release: load right after the start needs another soon
			rest = releasePause
		}
		begun = true
	}
}

// defaultGCPercent is the runtime's default for GOGC.
const defaultGCPercent = 100

// gcPercent returns the GOGC value for a heap with live bytes in use.
func gcPercent(live uint64) int {
	return int(max(defaultGCPercent, gcHeadroom*100/max(live, gcHeadroom/16)))
}

// gcTuner sets the garbage collector's GOGC value.
type gcTuner struct {
	percent int
	fixed   bool // set by GOGC: the operator has a reason
}

// set changes the value if the difference matters: the change stops the world for a moment.
func (c *gcTuner) set(percent int) {
	if c.fixed || percent*4 < c.percent*5 && percent*5 > c.percent*4 {
		return
	}
	debug.SetGCPercent(percent)
	c.percent = percent
}

// allocatedBytes returns the total number of bytes allocated so far.
func allocatedBytes() uint64 { return readMetric("/gc/heap/allocs:bytes") }

// liveHeapBytes returns the number of bytes in use after the last collection.
func liveHeapBytes() uint64 { return readMetric("/gc/heap/live:bytes") }

func readMetric(name string) uint64 {
	sample := []metrics.Sample{{Name: name}}
	metrics.Read(sample)
	return sample[0].Value.Uint64()
}

func freeMemory() {
	runtime.GC() // pools keep their contents for one more collection
	debug.FreeOSMemory()
	releaseProgramPages()
}
