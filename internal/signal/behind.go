// SPDX-License-Identifier: Apache-2.0

package signal

import (
	"runtime"
	"time"
)

// behindIdle is how long a thread waits for more to do; to make one takes a tenth of
// a millisecond.
const behindIdle = 100 * time.Millisecond

// behind hands work to a thread that waits.
var behind = make(chan func())

// Behind does work that takes the processor for long and can wait, such as a
// signature, on a thread which the kernel lets run behind the others (Linux;
// elsewhere among them), and returns when it is done. So what somebody waits for
// need not wait until a millisecond of it has passed. The work should hold no lock
// that others want. How much is done at once is for the caller to bound.
func Behind(work func()) {
	var panicked any
	done := make(chan struct{})
	job := func() {
		defer close(done)
		defer func() { panicked = recover() }()
		work()
	}
	select {
	case behind <- job:
	default:
		go workBehind(job)
	}
	<-done
	if panicked != nil {
		panic(panicked)
	}
}

// workBehind does jobs as they come. Its thread ends with it, since the priority
// can't be raised again.
func workBehind(job func()) {
	runtime.LockOSThread()
	stepBack()
	idle := time.NewTimer(behindIdle)
	defer idle.Stop()
	for {
		job()
		idle.Reset(behindIdle)
		select {
		case job = <-behind:
		case <-idle.C:
			return
		}
	}
}
