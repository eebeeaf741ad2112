// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// process is a server started by this program; its output goes to a log file.
type process struct {
	cmd  *exec.Cmd
	log  string
	done chan struct{}
	err  error
}

// startProcess starts a program in its own process group.
func startProcess(log string, env []string, name string, args ...string) (*process, error) {
	out, err := os.OpenFile(log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	defer func() { _ = out.Close() }() // the child has its own
	p := &process{cmd: exec.Command(name, args...), log: log, done: make(chan struct{})}
	p.cmd.Stdout, p.cmd.Stderr, p.cmd.Env = out, out, append(os.Environ(), env...)
	// If the load program is killed, its servers end too.
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		p.err = p.cmd.Wait()
		close(p.done)
	}()
	return p, nil
}

// stop stops the process with SIGTERM, and with SIGKILL after a while.
func (p *process) stop() error {
	if p == nil {
		return nil
	}
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	select {
	case <-p.done:
		return nil
	case <-time.After(40 * time.Second):
		_ = p.cmd.Process.Kill()
		<-p.done
		return errors.New("it did not end on SIGTERM")
	}
}

// waitGreeting waits until a server greets at addr. It polls frequently, because the start-up time
// depends on it.
func (p *process) waitGreeting(ctx context.Context, addr string) error {
	return p.waitReady(ctx, func() bool {
		conn, err := net.DialTimeout("tcp", addr, time.Second)
		if err != nil {
			return false
		}
		conn.SetDeadline(time.Now().Add(2 * time.Second))
		_, err = bufio.NewReader(conn).ReadByte()
		_ = conn.Close()
		return err == nil
	})
}

func (p *process) waitReady(ctx context.Context, ready func() bool) error {
	for {
		if ready() {
			return nil
		}
		select {
		case <-p.done:
			text, _ := os.ReadFile(p.log) // only for the error message
			return fmt.Errorf("%s ended before it greeted: %w\n%s", filepath.Base(p.cmd.Path), p.err, text[max(0, len(text)-2000):])
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(time.Millisecond):
		}
	}
}

// memory returns the memory of the process and its descendants in bytes: resident memory of a
// single process, proportional shares of several.
func (p *process) memory() (float64, error) {
	tree := descendants(p.cmd.Process.Pid)
	if len(tree) == 1 {
		return readStatusField(fmt.Sprintf("/proc/%d/status", tree[0]), "VmRSS")
	}
	total := 0.0
	for _, pid := range tree {
		kb, err := readStatusField(fmt.Sprintf("/proc/%d/smaps_rollup", pid), "Pss")
		if errors.Is(err, os.ErrNotExist) || errors.Is(err, syscall.ESRCH) {
			continue // it ended meanwhile
		}
		if err != nil {
			return 0, err
		}
		total += kb
	}
	return total, nil
}

func descendants(root int) []int {
	children := map[int][]int{}
	stats, _ := filepath.Glob("/proc/[0-9]*/stat") // the pattern is valid
	for _, file := range stats {
		text, err := os.ReadFile(file)
		if err != nil {
			continue
		}
		_, rest, _ := strings.Cut(string(text), ") ")
		fields := strings.Fields(rest)
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(file)))
		if err != nil || len(fields) < 2 {
			continue
		}
		if parent, err := strconv.Atoi(fields[1]); err == nil {
			children[parent] = append(children[parent], pid)
		}
	}
	tree := []int{root}
	for i := 0; i < len(tree); i++ {
		tree = append(tree, children[tree[i]]...)
	}
	return tree
}

func readStatusField(file, name string) (float64, error) {
	if _, err := os.Stat(file); err != nil {
		return 0, err
	}
	var kb float64
	if _, err := fmt.Sscan(readField(file, name), &kb); err != nil {
		return 0, fmt.Errorf("%s has no %s", file, name)
	}
	return kb * 1024, nil
}

// freePorts returns a port base with all ports free on 127.0.0.1.
func freePorts(offsets []int) (int, error) {
	for base := 20000; base < 60000; base += 1000 {
		free := true
		for _, o := range offsets {
			l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", base+o))
			if err != nil {
				free = false
				break
			}
			_ = l.Close()
		}
		if free {
			return base, nil
		}
	}
	return 0, errors.New("no free ports on 127.0.0.1")
}
