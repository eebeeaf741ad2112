// SPDX-License-Identifier: Apache-2.0

package notify

import "syscall"

// niceness gives a thread a tenth of the time of a normal thread on the same processor. So it makes
// progress even under permanent load.
const niceness = 10

// lowerPriority lowers the calling thread's priority, relative to the process's. If the system does
// not allow that, the thread keeps the normal priority.
func lowerPriority() {
	raw, err := syscall.Getpriority(syscall.PRIO_PROCESS, 0) // the system call returns 20 - nice
	if err == nil {
		_ = syscall.Setpriority(syscall.PRIO_PROCESS, 0, 20-raw+niceness)
	}
}
