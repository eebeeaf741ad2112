// SPDX-License-Identifier: Apache-2.0

package server_test

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"testing"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/mailstead/mailstead/internal/server"
	"github.com/mailstead/mailstead/internal/server/servertest"
)

// One network gets no more than its share of the connections of both HTTP servers, and others get
// theirs meanwhile.
func TestHTTPCrowd(t *testing.T) {
	s := servertest.Start(t, func(c *server.Config) { c.ProxyFrom = []string{"127.0.0.3/32"} })
	dial := func(listener, from string) (net.Conn, bool) {
		nc := balancer(t, s, listener, "127.0.0.3", "PROXY TCP4 "+from+" 127.0.0.1 4711 80\r\nHEAD /api/v1/x HTTP/1.1\r\nHost: x\r\n\r\n")
		a, err := http.ReadResponse(bufio.NewReader(nc), &http.Request{Method: http.MethodHead})
		if err == nil {
			_ = a.Body.Close()
		}
		if listener == "https" { // it answers in cleartext that it requires TLS
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
	for _, listener := range []string{"http", "https"} {
		if _, ok := dial(listener, "192.0.2.9"); ok {
			t.Errorf("%s: one more was taken", listener)
		}
		if _, ok := dial(listener, "192.0.2.10"); !ok {
			t.Errorf("%s: one of another network was not taken", listener)
		}
	}
	_ = some.(*net.TCPConn).CloseWrite()
	_, _ = io.Copy(io.Discard, some) // until the service has closed the connection too
	for ok := false; !ok; {
		_, ok = dial("http", "192.0.2.9")
	}
}

// One network also gets no more concurrent requests by HTTP/2, which carries many over one
// connection, even if only their short responses are still unread.
func TestHTTP2Crowd(t *testing.T) {
	s := servertest.Start(t, func(c *server.Config) { c.ProxyFrom = []string{"127.0.0.3/32"} })
	// ask makes requests over one connection whose client reads no body, and
	// returns a func that reads the status of one of them.
	ask := func(from string, requests int) (*http2.Framer, func() string) {
		t.Helper()
		nc := tls.Client(balancer(t, s, "https", "127.0.0.3", "PROXY TCP4 "+from+" 127.0.0.1 4711 443\r\n"),
			&tls.Config{RootCAs: s.TLS().RootCAs, ServerName: "localhost", NextProtos: []string{"h2"}})
		_, err := io.WriteString(nc, http2.ClientPreface)
		f := http2.NewFramer(nc, nc)
		f.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
		if err == nil {
			err = f.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0})
		}
		for n := range requests {
			var head bytes.Buffer
			e := hpack.NewEncoder(&head)
			for _, field := range [][2]string{{":method", "GET"}, {":scheme", "https"}, {":authority", "localhost"}, {":path", "/api/v1/nowhere"}} {
				_ = e.WriteField(hpack.HeaderField{Name: field[0], Value: field[1]})
			}
			if err == nil {
				err = f.WriteHeaders(http2.HeadersFrameParam{StreamID: uint32(2*n + 1), BlockFragment: head.Bytes(), EndStream: true, EndHeaders: true})
			}
		}
		if err != nil {
			t.Fatal(err)
		}
		return f, func() string {
			t.Helper()
			for {
				frame, err := f.ReadFrame()
				if err != nil {
					t.Fatal(err)
				}
				if h, ok := frame.(*http2.MetaHeadersFrame); ok {
					return h.PseudoValue("status")
				}
			}
		}
	}
	const network = 1000
	var some *http2.Framer
	for range network / 200 {
		f, status := ask("192.0.2.9", 200)
		for n := range 200 {
			if got := status(); got != "404" {
				t.Fatalf("request %d: %s", n, got)
			}
		}
		some = f
	}
	if _, status := ask("192.0.2.9", 1); status() != "429" {
		t.Error("one more was taken")
	}
	if _, status := ask("192.0.2.10", 1); status() != "404" {
		t.Error("one of another network was not taken")
	}
	if err := some.WriteWindowUpdate(1, 1<<20); err != nil { // it reads one response
		t.Fatal(err)
	}
	for got := ""; got != "404"; {
		_, status := ask("192.0.2.9", 1)
		got = status()
	}
}
