// SPDX-License-Identifier: Apache-2.0

package db_test

import (
	"context"
	"fmt"
	"os"
	osexec "os/exec"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"unsafe"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/db/dbtest"
)

// fsyncFailsIn names the database for the process that TestFsyncFails starts.
const fsyncFailsIn = "MAILSTEAD_TEST_FSYNC_FAILS_IN"

// A failed fsync ends the process, and no caller gets success.
func TestFsyncFails(t *testing.T) {
	if url := os.Getenv(fsyncFailsIn); url != "" {
		writeWithoutFsync(t, url)
		return
	}
	for _, how := range []string{"write", "tx"} {
		t.Run(how, func(t *testing.T) {
			url := dbtest.SQLite(t)
			child := osexec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestFsyncFails$", "-test.v")
			child.Env = append(os.Environ(), fsyncFailsIn+"="+url, "HOW="+how, "TMPDIR="+t.TempDir()) // it can't clean up
			out, err := child.CombinedOutput()
			if err == nil || !strings.Contains(string(out), "could not be made durable") ||
				!strings.Contains(string(out), "told: <nil>\n") || strings.Count(string(out), "told: ") != 1 {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
}

func writeWithoutFsync(t *testing.T, url string) {
	d, err := db.Open(t.Context(), db.Options{URL: url})
	if err != nil {
		t.Fatal(err)
	}
	add := func() error {
		id := d.NewID()
		if os.Getenv("HOW") == "tx" {
			_, err := d.Exec(context.Background(), addAccount.With(id, id.String(), "A"))
			return err
		}
		return d.Write(context.Background(), id, &db.Mutation{Apply: func(b *db.Batch) { b.Queue(addAccount.With(id, id.String(), "A")) }})
	}
	fmt.Printf("told: %v\n", add())
	failFsync(t)
	fmt.Printf("told: %v\n", add())
}

// failFsync makes fsync and fdatasync fail with EIO in this whole process from
// now on, by a seccomp filter.
func failFsync(t *testing.T) {
	seccomp := map[string]uintptr{"amd64": 317, "arm64": 277}[runtime.GOARCH]
	if seccomp == 0 {
		t.Fatalf("the number of seccomp(2) on %s is not known here", runtime.GOARCH)
	}
	const (
		loadNumber  = 0x20 // BPF_LD | BPF_W | BPF_ABS: the system call's number
		jumpIfEqual = 0x15 // BPF_JMP | BPF_JEQ | BPF_K
		answer      = 0x06 // BPF_RET | BPF_K
		allow       = 0x7fff0000
		fail        = 0x00050000 | uint32(syscall.EIO)
	)
	filter := []syscall.SockFilter{
		{Code: loadNumber},
		{Code: jumpIfEqual, K: syscall.SYS_FSYNC, Jt: 1},
		{Code: jumpIfEqual, K: syscall.SYS_FDATASYNC, Jf: 1},
		{Code: answer, K: fail},
		{Code: answer, K: allow},
	}
	program := syscall.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	const setFilter, allThreads, noNewPrivileges = 1, 1, 38
	runtime.LockOSThread()
	if _, _, errno := syscall.RawSyscall(syscall.SYS_PRCTL, noNewPrivileges, 1, 0); errno != 0 {
		t.Fatalf("prctl: %v", errno)
	}
	if r, _, errno := syscall.RawSyscall(seccomp, setFilter, allThreads, uintptr(unsafe.Pointer(&program))); r != 0 || errno != 0 {
		t.Fatalf("seccomp: %v, thread %d", errno, r)
	}
	if err := func() error {
		f, err := os.Create(t.TempDir() + "/probe")
		if err != nil {
			return err
		}
		defer f.Close() //nolint:errcheck // nothing to lose
		return f.Sync()
	}(); err == nil {
		t.Fatal("fsync still works")
	}
}
