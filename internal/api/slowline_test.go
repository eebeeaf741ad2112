// SPDX-License-Identifier: Apache-2.0

package api

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// A body may take as long as its connection needs while it keeps arriving. A body that is too slow,
// or stops, delays nothing.
func TestSlowLines(t *testing.T) {
	const mail = 34 << 20 // 25 MB in base64
	for what, c := range map[string]struct {
		size, perSecond int
		stop            int // after how many bytes the body stops; 0 for never
		status          int
		seconds         int // maximum
	}{
		"600 kbit/s":            {mail, 75_000, 0, 202, 480},
		"100 kbit/s":            {mail, 12_500, 0, 202, 2880},
		"a byte a second":       {mail, 1, 0, 408, 240},
		"8 kbit/s":              {mail, 1000, 0, 408, 240},
		"stops after 20 MB":     {mail, 1 << 20, 20 << 20, 408, 20 + 240},
		"stops after all of it": {mail, 1 << 20, mail - 1, 408, 34 + 240},
	} {
		for _, version := range []int{1, 2} {
			t.Run(fmt.Sprint(what, " over HTTP/", version), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					client := slowServer(t, version)
					r, w := io.Pipe()
					go func() {
						pace := time.NewTicker(time.Second)
						defer pace.Stop()
						for sent := 0; sent < c.size; {
							n := min(c.perSecond, c.size-sent)
							if c.stop > 0 && sent+n > c.stop {
								return
							}
							if _, err := io.CopyN(w, repeated('x'), int64(n)); err != nil {
								return
							}
							sent += n
							<-pace.C
						}
						_ = w.Close()
					}()
					begun := time.Now()
					req, err := http.NewRequestWithContext(t.Context(), "POST", "http://x/", r)
					if err != nil {
						t.Fatal(err)
					}
					req.ContentLength = int64(c.size)
					resp, err := client.Do(req)
					_ = r.Close()
					if err != nil {
						t.Fatal(time.Since(begun), err)
					}
					var p problem
					_ = json.NewDecoder(resp.Body).Decode(&p)
					_ = resp.Body.Close()
					if took := time.Since(begun); resp.StatusCode != c.status || took > time.Duration(c.seconds)*time.Second {
						t.Errorf("%d %s after %s", resp.StatusCode, p.Code, took)
					}
				})
			})
		}
	}
}

type repeated byte

func (r repeated) Read(p []byte) (int, error) {
	return copy(p, strings.Repeat(string(r), len(p))), nil
}

// slowServer accepts bodies like a send, with the timeouts of the service's servers, over pipes in
// fake time. It returns a client.
func slowServer(t *testing.T, version int) *http.Client {
	var protocols http.Protocols
	protocols.SetHTTP1(version == 1)
	protocols.SetUnencryptedHTTP2(version == 2)
	s := &http.Server{ReadHeaderTimeout: 10 * time.Second, ReadTimeout: 5 * time.Minute, WriteTimeout: 5 * time.Minute, Protocols: &protocols,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			body, arrived := limitBody(w, r, 40<<20, sendTimeout)
			if _, err := io.Copy(io.Discard, body); err != nil {
				quiet().writeProblem(w, r, err)
				return
			}
			arrived()
			w.WriteHeader(http.StatusAccepted)
		})}
	pipes := pipeListener{make(chan net.Conn), make(chan struct{})}
	go s.Serve(pipes) //nolint:errcheck // ends with Close
	transport := &http.Transport{Protocols: &protocols, DialContext: func(context.Context, string, string) (net.Conn, error) {
		near, far := net.Pipe()
		pipes.conns <- far
		return near, nil
	}}
	t.Cleanup(func() {
		transport.CloseIdleConnections()
		_ = s.Close()
		<-time.After(time.Minute) // every connection has ended by then
	})
	return &http.Client{Transport: transport}
}

type pipeListener struct {
	conns chan net.Conn
	ended chan struct{}
}

func (l pipeListener) Accept() (net.Conn, error) {
	select {
	case nc := <-l.conns:
		return nc, nil
	case <-l.ended:
		return nil, net.ErrClosed
	}
}

func (l pipeListener) Close() error {
	close(l.ended)
	return nil
}

func (l pipeListener) Addr() net.Addr { return &net.TCPAddr{} }
