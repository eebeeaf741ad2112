// SPDX-License-Identifier: Apache-2.0

package server

import (
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/netip"

	"github.com/mailstead/mailstead/internal/ratelimit"
)

// limitedListener is a listener of net/http with the limits that the SMTP and IMAP doors
// keep by themselves.
type limitedListener struct {
	net.Listener
	conns *ratelimit.ConnLimiter
	log   *slog.Logger
}

// Accept is that of net.Listener. net/http comes again after an error that
// passes, such as too many open files, and says nothing that anybody sees.
func (l *limitedListener) Accept() (net.Conn, error) {
	for {
		nc, err := l.Listener.Accept()
		if err != nil {
			if !errors.Is(err, net.ErrClosed) {
				l.log.Error("a connection could not be taken", "door", "http", "error", err)
			}
			return nil, err
		}
		from := nc.RemoteAddr().(*net.TCPAddr).AddrPort().Addr()
		release, ok := l.conns.Acquire(from)
		if ok {
			return &limitedConn{nc, release}, nil
		}
		l.log.Info("http: too many connections", "remote", from.Unmap())
		_ = nc.Close()
	}
}

// limitedConn is a connection that counts until it is closed.
type limitedConn struct {
	net.Conn
	release func()
}

// Close is that of net.Conn.
func (g *limitedConn) Close() error {
	defer g.release()
	return g.Conn.Close()
}

// CloseWrite lets net/http end its side first: a client that is still sending
// would miss the answer.
func (g *limitedConn) CloseWrite() error {
	if half, ok := g.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return nil
}

// limitRequests limits the concurrent requests of one network over HTTP/2 and through
// trusted proxies, as counted does its connections: one connection brings hundreds
// at a time, each of which holds its answer until that is read.
func limitRequests(requests *ratelimit.ConnLimiter, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		from, err := netip.ParseAddrPort(r.RemoteAddr)
		if err != nil || r.ProtoMajor < 2 && !isProxied(r) {
			next.ServeHTTP(w, r)
			return
		}
		release, ok := requests.Acquire(from.Addr())
		if !ok {
			w.Header().Set("Retry-After", "1")
			w.WriteHeader(http.StatusTooManyRequests) // without a body, which would wait to be read as well
			return
		}
		defer release()
		next.ServeHTTP(w, r)
		_ = http.NewResponseController(w).Flush() // what is left of the answer waits to be read, too
	})
}
