// SPDX-License-Identifier: Apache-2.0

package notify

import "syscall"

// niceness leaves a thread a tenth of what another gets while both want the same
// processor: it goes on, even where the load does not end.
const niceness = 10

// lowerPriority lowers the priority of the calling thread, from what the process was
// started with. Where that is not allowed the thread is as others are.
func lowerPriority() {
	raw, err := syscall.Getpriority(syscall.PRIO_PROCESS, 0) // the system call gives 20 - nice
	if err == nil {
		_ = syscall.Setpriority(syscall.PRIO_PROCESS, 0, 20-raw+niceness)
	}
}
