// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"os"
	"strconv"
	"strings"
	"time"
)

// When the machine counts as idle: processors were busy for less than a tenth of one during
// idleInterval. waitIdle gives up after idleTimeout.
const (
	idleInterval  = 500 * time.Millisecond
	idleThreshold = 0.1
	idleTimeout   = 90 * time.Second
)

// waitIdle waits until the systems have finished background work, such as indexing: otherwise it
// would affect the next system's result.
func waitIdle(ctx context.Context) error {
	tick := time.NewTicker(idleInterval)
	defer tick.Stop()
	before, known := busyTime()
	for end := time.Now().Add(idleTimeout); known && time.Now().Before(end); {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
		now, _ := busyTime()
		if (now - before).Seconds() < idleThreshold*idleInterval.Seconds() {
			return nil
		}
		before = now
	}
	return nil
}

// busyTime returns how long all processors together have worked since the boot, and whether that is
// known.
func busyTime() (time.Duration, bool) {
	text, err := os.ReadFile("/proc/stat")
	line, _, _ := strings.Cut(string(text), "\n")
	fields := strings.Fields(line)
	if err != nil || len(fields) < 8 {
		return 0, false
	}
	var ticks int64 // hundredths of a second: user, nice, system, then interrupts
	for _, at := range []int{1, 2, 3, 6, 7} {
		n, err := strconv.ParseInt(fields[at], 10, 64)
		if err != nil {
			return 0, false
		}
		ticks += n
	}
	return time.Duration(ticks) * 10 * time.Millisecond, true
}
