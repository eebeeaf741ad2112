// SPDX-License-Identifier: Apache-2.0

package listener

import (
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/netip"

	"github.com/mailstead/mailstead/internal/ratelimit"
)

// WithLimit returns a listener for net/http that applies connection limits. The SMTP and IMAP
// servers apply theirs themselves.
func WithLimit(l net.Listener, conns *ratelimit.ConnLimiter, log *slog.Logger) net.Listener {
	return &limitedListener{l, conns, log}
}

type limitedListener struct {
	net.Listener
	conns *ratelimit.ConnLimiter
	log   *slog.Logger
}

// Accept implements net.Listener. It logs temporary errors (too many open files, for example),
// after which net/http retries without logging to the service's log.
func (l *limitedListener) Accept() (net.Conn, error) {
	for {
		nc, err := l.Listener.Accept()
		if err != nil {
			if !errors.Is(err, net.ErrClosed) {
				l.log.Error("a connection could not be accepted", "listener", "http", "error", err)
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

// limitedConn is a connection that counts towards the limits until it is closed.
type limitedConn struct {
	net.Conn
	release func()
}

// Close implements net.Conn.
func (g *limitedConn) Close() error {
	defer g.release()
	return g.Conn.Close()
}

// CloseWrite lets net/http close its side first: otherwise a client that is still sending would
// miss the response.
func (g *limitedConn) CloseWrite() error {
	if half, ok := g.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return nil
}

// LimitRequests limits the concurrent requests of one network over HTTP/2 and through trusted
// proxies, as WithLimit limits connections. One connection can carry hundreds of requests
// at a time, and each holds its response in memory until the client reads it.
func LimitRequests(next http.Handler, requests *ratelimit.ConnLimiter) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		from, err := netip.ParseAddrPort(r.RemoteAddr)
		if err != nil || r.ProtoMajor < 2 && !isProxied(r) {
			next.ServeHTTP(w, r)
			return
		}
		release, ok := requests.Acquire(from.Addr())
		if !ok {
			w.Header().Set("Retry-After", "1")
			w.WriteHeader(http.StatusTooManyRequests) // without a body, which would wait for the client too
			return
		}
		defer release()
		next.ServeHTTP(w, r)
		_ = http.NewResponseController(w).Flush() // the rest of the response waits for the client too
	})
}
