// SPDX-License-Identifier: Apache-2.0

package migration

import (
	"errors"
	"net"
	"runtime"
	"testing"
	"time"
)

// drip is a connection that brings one byte at a time, and no end of a line.
type drip struct {
	net.Conn
	reads, deepest int
}

func (d *drip) SetReadDeadline(time.Time) error { return nil }
func (d *drip) SetDeadline(time.Time) error     { return nil }

func (d *drip) Read(p []byte) (int, error) {
	d.reads++
	d.deepest = max(d.deepest, runtime.Callers(0, make([]uintptr, 200)))
	p[0] = 'x'
	return 1, nil
}

// A source that sends a long line byte by byte needs no stack for each: a stack
// that is full ends the process.
func TestDrip(t *testing.T) {
	const budget = 4 << 10
	d := &drip{}
	l := &line{Conn: d, patience: time.Hour}
	l.ask(budget)
	if _, err := l.Read(make([]byte, 100)); !errors.Is(err, errTooMuch) {
		t.Error(err)
	}
	if d.reads != budget || d.deepest > 50 {
		t.Errorf("%d reads, %d calls deep", d.reads, d.deepest)
	}
}
