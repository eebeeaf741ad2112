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

// A body may take as long as its line needs, if it goes on coming; one that
// hardly does, or stops, holds nothing up.
func TestSlowLines(t *testing.T) {
	const letter = 34 << 20 // 25 MB in base64
	for what, c := range map[string]struct {
		size, perSecond int
		stop            int // after so many bytes nothing comes; 0 for never
		status          int
		seconds         int // at most
	}{
		"600 kbit/s":            {letter, 75_000, 0, 202, 480},
		"100 kbit/s":            {letter, 12_500, 0, 202, 2880},
		"a byte a second":       {letter, 1, 0, 408, 240},
		"8 kbit/s":              {letter, 1000, 0, 408, 240},
		"stops after 20 MB":     {letter, 1 << 20, 20 << 20, 408, 20 + 240},
		"stops after all of it": {letter, 1 << 20, letter - 1, 408, 34 + 240},
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

// slowServer takes bodies as sends are taken, under the bounds of the service's
// doors, over pipes: so a test needs no time. It returns a client of it.
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
		<-time.After(time.Minute) // whoever still has something to say has ended
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
