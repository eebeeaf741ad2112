// SPDX-License-Identifier: Apache-2.0

package main

import (
	"runtime/debug"
	"testing"
)

// A small heap may grow by the headroom, a large one to twice its size.
func TestPercentFor(t *testing.T) {
	for live, want := range map[uint64]int{0: 1600, 16 << 20: 400, 32 << 20: 200, 64 << 20: 100, 1 << 30: 100} {
		if got := gcPercent(live); got != want {
			t.Errorf("with %d MiB in use: %d %%, want %d", live>>20, got, want)
		}
	}
}

// GOGC is set only if the difference matters, and never if the operator set it.
func TestCollecting(t *testing.T) {
	before := debug.SetGCPercent(100)
	defer debug.SetGCPercent(before)
	now := func() int {
		p := debug.SetGCPercent(100)
		debug.SetGCPercent(p)
		return p
	}
	c := gcTuner{percent: 100}
	for _, step := range []struct{ set, want int }{{400, 400}, {450, 400}, {360, 400}, {200, 200}, {100, 100}} {
		if c.set(step.set); now() != step.want {
			t.Fatalf("set to %d: it is %d, want %d", step.set, now(), step.want)
		}
	}
	fixed := gcTuner{percent: 100, fixed: true}
	if fixed.set(400); now() != 100 {
		t.Fatal("it was set although GOGC says how")
	}
}
