// SPDX-License-Identifier: Apache-2.0

package migration

import (
	"bufio"
	"errors"
	"io"
	"net"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/emersion/go-imap/v2/imapclient"
)

// drip is a connection that delivers one byte at a time and never ends a line.
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

// A source that sends a long line byte by byte must not add a stack frame for each byte: a stack
// overflow ends the process.
func TestDrip(t *testing.T) {
	const budget = 4 << 10
	d := &drip{}
	l := &sourceConn{Conn: d, idleTimeout: time.Hour}
	l.beginCommand(budget)
	if _, err := l.Read(make([]byte, 100)); !errors.Is(err, errTooMuchData) {
		t.Error(err)
	}
	if d.reads != budget || d.deepest > 50 {
		t.Errorf("%d reads, %d calls deep", d.reads, d.deepest)
	}
}

// Reading search results takes time linear in their length, in any order and notation.
func TestFound(t *testing.T) {
	const many = 1_500_000
	backwards := []byte("* SEARCH")
	for uid := 2 * many; uid > 0; uid -= 2 {
		backwards = strconv.AppendInt(append(backwards, ' '), int64(uid), 10)
	}
	for said, want := range map[string]int{
		"* SEARCH\r\n": 0, "* SEARCH \r\n": 0, "* search 3 1 2 (MODSEQ 7)\r\n": 3, "* SEARCH 1\r\n* SEARCH 2\r\n": 2,
		"* ESEARCH (TAG \"T1\") UID ALL 1:3,9 MODSEQ 7\r\n": 4, "* ESEARCH (TAG \"T1\") UID\r\n": 0,
		string(backwards) + "\r\n": many,
		"* SEARCH 1 x\r\n":         -1, "* ESEARCH (TAG \"T1\") UID ALL 1:*\r\n": -1, "* SEARCH 1 2\r\n* SEARCH 99999999999\r\n": -1,
	} {
		near, far := net.Pipe()
		go func() {
			_, _ = io.WriteString(far, "* PREAUTH [CAPABILITY IMAP4rev1] hi\r\n")
			command, _ := bufio.NewReader(far).ReadString('\n')
			tag, _, _ := strings.Cut(command, " ")
			_, _ = io.WriteString(far, said+tag+" OK done\r\n")
		}()
		l := &sourceConn{Conn: near, idleTimeout: time.Hour}
		l.beginCommand(smallResponse)
		s := &session{conn: l, Client: imapclient.New(l, nil)}
		if err := s.WaitGreeting(); err != nil {
			t.Fatal(err)
		}
		uids, err := s.search(1, 0)
		if got := len(uids); got != max(want, 0) || (err != nil) != (want < 0) || !slices.IsSorted(uids) {
			t.Errorf("%.50q: %d, %v", said, got, err)
		}
		s.close()
	}
}
