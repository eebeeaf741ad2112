// SPDX-License-Identifier: Apache-2.0

package notify

import (
	"runtime"
	"sync"
	"testing"
)

func TestBehind(t *testing.T) {
	inside := false
	RunLowPriority(func() { inside = true })
	if !inside {
		t.Error("nothing was done without room")
	}
	EnableLowPriority()
	if n := runtime.GOMAXPROCS(0); n <= Processors {
		t.Errorf("%d threads run on %d processors", n, Processors)
	}
	// Several at once, and one after the other.
	var all sync.WaitGroup
	var n [8]int
	for i := range n {
		all.Go(func() {
			for range 100 {
				RunLowPriority(func() { n[i]++ })
			}
		})
	}
	all.Wait()
	for i, n := range n {
		if n != 100 {
			t.Errorf("%d of caller %d are done", n, i)
		}
	}
	// One inside another.
	inside = false
	RunLowPriority(func() { RunLowPriority(func() { inside = true }) })
	if !inside {
		t.Error("nothing was done inside")
	}
	// A panic reaches the caller.
	func() {
		defer func() {
			if v := recover(); v != "broken" {
				t.Errorf("recovered %v", v)
			}
		}()
		RunLowPriority(func() { panic("broken") })
	}()
}

func BenchmarkBehind(b *testing.B) {
	EnableLowPriority()
	for b.Loop() {
		RunLowPriority(func() {})
	}
}
