// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// LockHolder returns the process that has locked a file, from the kernel's list of locks: trying
// the lock could stop a service that is just starting. known is false if the kernel doesn't say. A
// process in another container is not visible.
func LockHolder(lock string) (pid int, known bool) {
	info, err := os.Stat(lock)
	if err != nil {
		return 0, errors.Is(err, fs.ErrNotExist) // it was never locked
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	locks, err := os.Open("/proc/locks")
	if err != nil || !ok {
		return 0, false
	}
	defer locks.Close() //nolint:errcheck // only read
	// 12: FLOCK  ADVISORY  WRITE 4711 fe:00:12961081 0 EOF
	for lines := bufio.NewScanner(locks); lines.Scan(); {
		f := strings.Fields(lines.Text())
		if len(f) < 6 || f[1] != "FLOCK" || f[3] != "WRITE" {
			continue
		}
		place := strings.Split(f[5], ":")
		if len(place) != 3 || place[2] != fmt.Sprint(st.Ino) {
			continue
		}
		pid, err := strconv.Atoi(f[4])
		if err != nil {
			continue
		}
		major, minor := uint64(st.Dev)>>8&0xfff|uint64(st.Dev)>>32&^0xfff, uint64(st.Dev)&0xff|uint64(st.Dev)>>12&^0xff //nolint:unconvert // int32 elsewhere
		if place[0] == fmt.Sprintf("%02x", major) && place[1] == fmt.Sprintf("%02x", minor) || hasOpenFile(pid, info) {
			return pid, true
		}
	}
	return 0, true
}

// OpenFiles checks how many files the service's process may open; each connection is one.
type OpenFiles struct {
	PID      int
	Required uint64 // minimum
}

// Check reads the limit of the process itself: a shell's limits differ from a unit's.
func (o OpenFiles) Check(_ context.Context, r *Report) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/limits", o.PID))
	if err != nil {
		r.OK("how many it may open can't be told")
		return
	}
	for line := range strings.Lines(string(text)) {
		soft, ok := strings.CutPrefix(line, "Max open files ")
		if !ok {
			continue
		}
		f := strings.Fields(soft)
		if n, err := strconv.ParseUint(f[0], 10, 64); err == nil && n < o.Required { // else it is unlimited
			r.Warn("Allow it more, such as by LimitNOFILE=65536 in its unit or --ulimit nofile=65536 for its container, and restart it: once they are used up nobody gets in.",
				"it may open %d files, and each connection is one", n)
			return
		}
		r.OK("it may open %s", f[0])
	}
}

// hasOpenFile reports whether a process has a file open. It is for file systems whose device
// differs from the kernel's list of locks, as with btrfs and overlays.
func hasOpenFile(pid int, file os.FileInfo) bool {
	open, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
	if err != nil {
		return false
	}
	for _, name := range open {
		if info, err := os.Stat(name); err == nil && os.SameFile(info, file) {
			return true
		}
	}
	return false
}
