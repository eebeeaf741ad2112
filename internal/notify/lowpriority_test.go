// SPDX-License-Identifier: Apache-2.0

package notify

import (
	"context"
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"
)

func TestRunLowPriority(t *testing.T) {
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

// BenchmarkLowPriority measures how late a goroutine continues after a wait, as one does that waits
// for the network, while others sign messages all the time. The first form must run first: low
// priority can't be switched off again.
func BenchmarkLowPriority(b *testing.B) {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		b.Fatal(err)
	}
	sign := func() {
		if _, err := rsa.SignPKCS1v15(nil, key, crypto.SHA256, make([]byte, 32)); err != nil {
			b.Error(err)
		}
	}
	for _, c := range []struct {
		name   string
		enable func()
	}{
		{"normal", func() {}},
		{"low", EnableLowPriority},
	} {
		b.Run(c.name, func(b *testing.B) {
			c.enable()
			ctx, cancel := context.WithCancel(b.Context())
			var signers sync.WaitGroup
			for range 4 * Processors {
				signers.Go(func() {
					for ctx.Err() == nil {
						RunLowPriority(sign)
					}
				})
			}
			var late []time.Duration
			for b.Loop() {
				due := time.Now().Add(time.Millisecond)
				<-time.After(time.Millisecond)
				late = append(late, time.Since(due))
			}
			cancel()
			signers.Wait()
			slices.Sort(late)
			b.ReportMetric(float64(late[len(late)/2].Microseconds()), "p50-µs")
			b.ReportMetric(float64(late[len(late)*99/100].Microseconds()), "p99-µs")
		})
	}
}
