// SPDX-License-Identifier: Apache-2.0

package listener_test

import (
	"bytes"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/mailstead/mailstead/internal/listener"
	"github.com/mailstead/mailstead/internal/ratelimit"
)

// exhausted is a listener of a process that has too many files open, once.
type exhausted struct {
	net.Listener
	once bool
}

func (l *exhausted) Accept() (net.Conn, error) {
	if !l.once {
		l.once = true
		return nil, &net.OpError{Op: "accept", Net: "tcp", Err: os.NewSyscallError("accept4", syscall.EMFILE)}
	}
	return l.Listener.Accept()
}

// The error "too many open files" is logged, and the listener continues.
func TestHTTPTooManyFiles(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	server := &http.Server{Handler: http.NotFoundHandler(), ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug)}
	served := make(chan error, 1)
	go func() {
		served <- server.Serve(listener.WithLimit(&exhausted{Listener: ln}, &ratelimit.ConnLimiter{}, slog.New(slog.NewTextHandler(&log, nil))))
	}()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	a, err := client.Get("http://" + ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	_ = a.Body.Close()
	if err := server.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-served; !errors.Is(err, http.ErrServerClosed) {
		t.Error(err)
	}
	if !strings.Contains(log.String(), "too many open files") {
		t.Errorf("the log says %q", &log)
	}
}
