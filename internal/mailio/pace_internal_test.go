// SPDX-License-Identifier: Apache-2.0

package mailio

import (
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"
)

// A stalled body times out. A slow one may take any time, and the time between two reads does not
// count.
func TestArriving(t *testing.T) {
	outcome := make(chan error, 1)
	stall, pause := time.Duration(0), make(chan struct{})
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		a := NewRequestBodyReader(w, r)
		a.timeout, a.remaining = stall, stall
		var err error
		if r.URL.Path == "/paused" {
			_, err = io.ReadFull(a, make([]byte, 1))
			a.remaining = time.Minute
			<-pause
		}
		if err == nil {
			_, err = io.Copy(io.Discard, a)
		}
		a.PrepareResponse(err == nil)
		outcome <- err
	}))
	s.Start()
	defer s.Close()
	open := func(path string) net.Conn {
		conn, err := net.Dial("tcp", s.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(conn, "POST "+path+" HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\nx"); err != nil {
			t.Fatal(err)
		}
		return conn
	}
	stall = 20 * time.Millisecond
	conn := open("/still")
	if err := <-outcome; !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("one that stands still: %v", err)
	}
	_ = conn.Close()

	stall = time.Minute
	conn = open("/paused")
	if _, err := io.WriteString(conn, strings.Repeat("x", 99_999)); err != nil {
		t.Fatal(err)
	}
	close(pause)
	if err := <-outcome; err != nil {
		t.Errorf("one that goes on: %v", err)
	}
	_ = conn.Close()
}
