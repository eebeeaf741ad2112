// SPDX-License-Identifier: Apache-2.0

package server_test

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"testing"

	"github.com/mailstead/mailstead/internal/server"
	"github.com/mailstead/mailstead/internal/server/servertest"
)

// One network gets no more than its share of the connections of both HTTP doors,
// and others get theirs meanwhile.
func TestHTTPCrowd(t *testing.T) {
	s := servertest.Start(t, func(c *server.Config) { c.ProxyFrom = []string{"127.0.0.3/32"} })
	dial := func(door, from string) (net.Conn, bool) {
		nc := balancer(t, s, door, "127.0.0.3", "PROXY TCP4 "+from+" 127.0.0.1 4711 80\r\nHEAD /api/v1/x HTTP/1.1\r\nHost: x\r\n\r\n")
		a, err := http.ReadResponse(bufio.NewReader(nc), &http.Request{Method: http.MethodHead})
		if err == nil {
			_ = a.Body.Close()
		}
		if door == "https" { // which says in clear that it is not spoken to in clear
			return nc, err == nil && a.StatusCode == http.StatusBadRequest
		}
		return nc, err == nil && a.StatusCode == http.StatusNotFound
	}
	var some net.Conn
	for n := range 1000 {
		nc, ok := dial("http", "192.0.2.9")
		if !ok {
			t.Fatalf("connection %d was not taken", n)
		}
		some = nc
	}
	for _, door := range []string{"http", "https"} {
		if _, ok := dial(door, "192.0.2.9"); ok {
			t.Errorf("%s: one more was taken", door)
		}
		if _, ok := dial(door, "192.0.2.10"); !ok {
			t.Errorf("%s: one of another network was not taken", door)
		}
	}
	_ = some.(*net.TCPConn).CloseWrite()
	_, _ = io.Copy(io.Discard, some) // until the service has closed it too
	for ok := false; !ok; {
		_, ok = dial("http", "192.0.2.9")
	}
}
