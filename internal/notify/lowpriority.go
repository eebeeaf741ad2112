// SPDX-License-Identifier: Apache-2.0

package notify

import (
	"runtime"
	"sync/atomic"
	"time"
)

// Processors is how many processors the process may use: what GOMAXPROCS said when it
// began, which heeds the quota of a container.
var Processors = runtime.GOMAXPROCS(0)

// lowPriorityEnabled is whether there is room behind.
var lowPriorityEnabled atomic.Bool

// EnableLowPriority has RunLowPriority use threads that give way. It lets half as many threads again
// run as there are processors, at least one: the kernel keeps one that gives way from
// running while the runtime counts it among those that run, so on a single processor
// nobody else would. Programs call it once, at their start.
func EnableLowPriority() {
	runtime.GOMAXPROCS(Processors + max(1, Processors/2))
	lowPriorityEnabled.Store(true)
}

// lowPriorityIdle is how long a thread waits for more to do; to make one takes a tenth of
// a millisecond.
const lowPriorityIdle = 100 * time.Millisecond

// lowPriorityWork hands work to a thread that waits.
var lowPriorityWork = make(chan func())

// RunLowPriority does work that takes the processor for long and can wait, such as a
// signature, on a thread which the kernel lets run behind the others (on Linux, after
// EnableLowPriority; else among them), and returns when it is done. So what somebody waits for
// need not wait until a millisecond of it has passed. The work should hold no lock
// that others want. How much is done at once is for the caller to bound.
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

// runLowPriorityThread does jobs as they come. Its thread ends with it, since the priority
// can't be raised again.
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
