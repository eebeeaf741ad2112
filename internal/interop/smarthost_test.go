// SPDX-License-Identifier: Apache-2.0

package interop

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
)

// smartHost accepts each message on command: until then, the client waits at the final dot.
type smartHost struct {
	t      *testing.T // test that it belongs to
	addr   string
	port   *os.File    // bound to addr
	came   chan string // recipient of a message that has arrived
	answer chan string
}

// reserve takes a port at which connections are refused: nobody else gets it.
func (h *smartHost) reserve() {
	t := h.t
	t.Helper()
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	h.port = os.NewFile(uintptr(fd), "port")
	t.Cleanup(func() { _ = h.port.Close() })
	if err := syscall.Bind(fd, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		t.Fatal(err)
	}
	at, err := syscall.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	h.addr = fmt.Sprintf("127.0.0.1:%d", at.(*syscall.SockaddrInet4).Port)
}

// open starts listening; until then connections are refused.
func (h *smartHost) open() {
	t := h.t
	t.Helper()
	if err := syscall.Listen(int(h.port.Fd()), 16); err != nil {
		t.Fatal(err)
	}
	l, err := net.FileListener(h.port)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			nc, err := l.Accept()
			if err != nil {
				return
			}
			go h.serve(nc, t.Context().Done())
		}
	}()
}

func (h *smartHost) serve(nc net.Conn, ended <-chan struct{}) {
	defer nc.Close() //nolint:errcheck // it hangs up
	say := func(text string) { _, _ = fmt.Fprintf(nc, "%s\r\n", text) }
	in := bufio.NewScanner(nc)
	to := ""
	say("220 smart.example ESMTP")
	for in.Scan() {
		line := in.Text()
		switch verb, rest, _ := strings.Cut(line, " "); strings.ToUpper(verb) {
		case "EHLO":
			say("250 smart.example")
		case "RCPT":
			to = strings.Trim(strings.TrimPrefix(strings.Fields(rest)[0], "TO:"), "<>")
			say("250 2.1.5 ok")
		case "DATA":
			say("354 go ahead")
			for in.Scan() && in.Text() != "." {
			}
			select {
			case h.came <- to:
			case <-ended:
				return
			}
			select {
			case text := <-h.answer:
				say(text)
			case <-ended:
				return
			}
		case "QUIT":
			say("221 2.0.0 bye")
			return
		default:
			say("250 2.0.0 ok")
		}
	}
}
