// SPDX-License-Identifier: Apache-2.0

package signal

import (
	"runtime"
	"sync"
	"testing"
)

func TestBehind(t *testing.T) {
	inside := false
	Behind(func() { inside = true })
	if !inside {
		t.Error("nothing was done without room")
	}
	MakeRoom()
	if n := runtime.GOMAXPROCS(0); n <= Processors {
		t.Errorf("%d threads run on %d processors", n, Processors)
	}
	// Several at once, and one after the other.
	var all sync.WaitGroup
	var n [8]int
	for i := range n {
		all.Go(func() {
			for range 100 {
				Behind(func() { n[i]++ })
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
	Behind(func() { Behind(func() { inside = true }) })
	if !inside {
		t.Error("nothing was done inside")
	}
	// A panic is the caller's.
	func() {
		defer func() {
			if v := recover(); v != "broken" {
				t.Errorf("recovered %v", v)
			}
		}()
		Behind(func() { panic("broken") })
	}()
}

func BenchmarkBehind(b *testing.B) {
	MakeRoom()
	for b.Loop() {
		Behind(func() {})
	}
}
