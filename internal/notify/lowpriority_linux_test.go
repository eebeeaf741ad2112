// SPDX-License-Identifier: Apache-2.0

package notify

import (
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// niceOf returns how nice the threads of the process are, by their numbers.
func niceOf(t *testing.T) map[int]int {
	t.Helper()
	all, err := filepath.Glob("/proc/self/task/*/stat")
	if err != nil {
		t.Fatal(err)
	}
	nice := map[int]int{}
	for _, path := range all {
		text, err := os.ReadFile(path)
		if err != nil {
			continue // it has ended
		}
		_, after, _ := strings.Cut(string(text), ") ")
		id, err := strconv.Atoi(filepath.Base(filepath.Dir(path)))
		if err != nil {
			t.Fatal(err)
		}
		if nice[id], err = strconv.Atoi(strings.Fields(after)[16]); err != nil {
			t.Fatal(err)
		}
	}
	return nice
}

// Work behind gives way to all other threads, and none else does, nor those that are
// made while it works.
func TestBehindGivesWay(t *testing.T) {
	EnableLowPriority()
	runtime.LockOSThread()
	own := niceOf(t)[syscall.Gettid()]
	runtime.UnlockOSThread()
	busy, end := make(chan int), make(chan struct{})
	worked := make(chan struct{}, 3)
	for range cap(worked) {
		go func() {
			RunLowPriority(func() {
				busy <- syscall.Gettid()
				<-end
			})
			worked <- struct{}{}
		}()
	}
	behind := map[int]bool{}
	for range cap(worked) {
		behind[<-busy] = true
	}
	for range 20 { // more threads
		go func() {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			busy <- syscall.Gettid()
			<-end
		}()
	}
	for range 20 {
		<-busy
	}
	all := niceOf(t)
	delete(all, os.Getpid()) // out of use if an earlier test worked on it
	for id, nice := range all {
		if want := min(19, own+niceness); behind[id] && nice != want || !behind[id] && nice != own {
			t.Errorf("thread %d, behind %v: nice %d", id, behind[id], nice)
		}
	}
	close(end)
	for range cap(worked) {
		<-worked
	}
}
