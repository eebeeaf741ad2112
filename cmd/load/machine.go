// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"time"
)

// describeMachine describes in one line the machine, and its load when the run began.
func describeMachine(dir string) string {
	parts := []string{time.Now().UTC().Format("2006-01-02 15:04 UTC"), fmt.Sprintf("%d CPUs", runtime.NumCPU())}
	if model := readField("/proc/cpuinfo", "model name"); model != "" {
		parts[1] += " (" + model + ")"
	}
	if total := readField("/proc/meminfo", "MemTotal"); total != "" {
		parts = append(parts, "memory "+total)
	}
	parts = append(parts, "disk "+fileSystem(dir))
	if release, err := os.ReadFile("/proc/sys/kernel/osrelease"); err == nil {
		parts = append(parts, "Linux "+strings.TrimSpace(string(release)))
	}
	parts = append(parts, runtime.Version())
	if text, err := os.ReadFile("/proc/loadavg"); err == nil {
		parts = append(parts, "load average at the start "+strings.Join(strings.Fields(string(text))[:1], ""))
	}
	return strings.Join(parts, ", ")
}

func readField(file, name string) string {
	text, _ := os.ReadFile(file) // missing facts are omitted
	for line := range strings.Lines(string(text)) {
		if key, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(key) == name {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

func fileSystem(dir string) string {
	out, err := exec.Command("df", "--output=fstype", dir).Output()
	if err != nil {
		return "unknown"
	}
	return strings.Join(strings.Fields(string(out))[1:], " ")
}

// packageVersions returns the versions of the peers' Debian packages.
func packageVersions() string {
	out, err := exec.Command("dpkg-query", "-W", "-f", "${Package} ${Version}\n", "postfix", "dovecot-core", "postgresql-15", "postgresql").Output()
	if err != nil && len(out) == 0 {
		return ""
	}
	return strings.Join(strings.Split(strings.TrimSpace(string(out)), "\n"), ", ")
}
