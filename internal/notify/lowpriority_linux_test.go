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

// niceOf returns the nice values of the process's threads, by thread id.
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
			continue // the thread has ended
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

// Only the threads of RunLowPriority have a low priority: no other threads do, and none that are
// created meanwhile.
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
	for range 20 { // create more threads
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
	delete(all, os.Getpid()) // unused if an earlier test ran low-priority work on it
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
