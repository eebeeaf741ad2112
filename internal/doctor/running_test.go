// SPDX-License-Identifier: Apache-2.0

package doctor_test

import (
	"bufio"
	"errors"
	"os/exec"
	"testing"

	"github.com/mailstead/mailstead/internal/doctor"
)

// The limit is that of the process.
func TestOpenFiles(t *testing.T) {
	service := exec.CommandContext(t.Context(), "sh", "-c", "ulimit -n 64; echo ready; exec cat")
	stdin, err := service.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := service.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := service.Start(); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(stdout).ReadString('\n'); line != "ready\n" {
		t.Fatalf("%q, %v", line, err)
	}
	expect(t, doctor.OpenFiles{PID: service.Process.Pid, Required: 65}.Check, doctor.Warning, "64 files")
	expect(t, doctor.OpenFiles{PID: service.Process.Pid, Required: 64}.Check, doctor.OK, "64")
	if err := errors.Join(stdin.Close(), service.Wait()); err != nil {
		t.Error(err)
	}
	expect(t, doctor.OpenFiles{PID: service.Process.Pid, Required: 64}.Check, doctor.OK, "can't be told")
}
