// SPDX-License-Identifier: Apache-2.0

package notify

import (
	"runtime"
	"sync/atomic"
	"time"
)

// Processors is the number of processors that the process may use: GOMAXPROCS at the start, which
// respects a container's CPU limit.
var Processors = runtime.GOMAXPROCS(0)

// lowPriorityEnabled says whether EnableLowPriority was called.
var lowPriorityEnabled atomic.Bool

// EnableLowPriority makes RunLowPriority use threads of low priority. It raises GOMAXPROCS by half,
// at least by one: the runtime counts a low-priority thread as running even while the kernel
// doesn't run it, so on a single processor nothing else could run. Programs call it once, at their
// start.
func EnableLowPriority() {
	runtime.GOMAXPROCS(Processors + max(1, Processors/2))
	lowPriorityEnabled.Store(true)
}

// lowPriorityIdle is how long an idle thread waits for more work. To create a thread takes a tenth
// of a millisecond.
const lowPriorityIdle = 100 * time.Millisecond

// lowPriorityWork passes work to an idle thread.
var lowPriorityWork = make(chan func())

// RunLowPriority runs CPU-intensive work that can wait (a signature, for example) on a
// low-priority thread, and returns when it is done. Priorities work on Linux after
// EnableLowPriority; otherwise the thread has the normal priority. So foreground requests don't
// wait for a millisecond of this work. The work should hold no lock that others need. The caller
// must bound the amount of concurrent work.
func RunLowPriority(work func()) {
	if !lowPriorityEnabled.Load() {
		work()
		return
	}
	var panicked any
	done := make(chan struct{})
	job := func() {
		defer close(done)
		defer func() { panicked = recover() }()
		work()
	}
	select {
	case lowPriorityWork <- job:
	default:
		go runLowPriorityThread(job)
	}
	<-done
	if panicked != nil {
		panic(panicked)
	}
}

// runLowPriorityThread runs jobs as they come. Its thread ends with it, since the priority can't be
// raised again.
func runLowPriorityThread(job func()) {
	runtime.LockOSThread()
	lowerPriority()
	idle := time.NewTimer(lowPriorityIdle)
	defer idle.Stop()
	for {
		job()
		idle.Reset(lowPriorityIdle)
		select {
		case job = <-lowPriorityWork:
		case <-idle.C:
			return
		}
	}
}
