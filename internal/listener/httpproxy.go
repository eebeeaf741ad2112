// SPDX-License-Identifier: Apache-2.0

package listener

import (
	"context"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"

	"github.com/pires/go-proxyproto"
	"github.com/pires/go-proxyproto/tlvparse"
)

// encryptedContextKey is the context key for whether the client used TLS up to a trusted proxy.
type encryptedContextKey struct{}

// IsEncrypted reports whether the client encrypted a request: with TLS to this service, or up to
// a trusted proxy.
func IsEncrypted(r *http.Request) bool {
	yes, _ := r.Context().Value(encryptedContextKey{}).(bool)
	return yes || r.TLS != nil
}

// isProxied reports whether a request came through a trusted proxy. It then shares its connection
// with requests of other clients.
func isProxied(r *http.Request) bool {
	_, ok := r.Context().Value(encryptedContextKey{}).(bool)
	return ok
}

// WithForwardedFor passes requests on to next, with the client's address from the headers of
// trusted HTTP proxies. It ignores the headers of other hosts.
func WithForwardedFor(next http.Handler, trusted Proxies) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		peer, err := netip.ParseAddrPort(r.RemoteAddr)
		if err != nil || !trusted.Contain(peer.Addr()) {
			next.ServeHTTP(w, r)
			return
		}
		client, ok := trusted.clientAddr(r.Header.Values("X-Forwarded-For"))
		proto := strings.ToLower(strings.Join(r.Header.Values("X-Forwarded-Proto"), ","))
		if !ok || proto != "https" && proto != "http" {
			http.Error(w, "The proxy in front of this server must set X-Forwarded-For to the client's address and X-Forwarded-Proto to https or http.", http.StatusBadGateway)
			return
		}
		r = r.WithContext(context.WithValue(r.Context(), encryptedContextKey{}, proto == "https"))
		r.RemoteAddr = netip.AddrPortFrom(client, 0).String()
		next.ServeHTTP(w, r)
	})
}

// clientAddr returns the last address of X-Forwarded-For that is not a trusted proxy. Each proxy
// appends its peer, and the client may have forged the addresses before that.
func (p Proxies) clientAddr(headers []string) (client netip.Addr, ok bool) {
	hops := strings.Split(strings.Join(headers, ","), ",")
	for _, hop := range slices.Backward(hops) {
		hop = strings.TrimSpace(hop)
		at, err := netip.ParseAddr(hop)
		if err != nil {
			withPort, err := netip.ParseAddrPort(hop)
			if err != nil {
				return netip.Addr{}, false
			}
			at = withPort.Addr()
		}
		client, ok = at.Unmap().WithZone(""), true
		if !p.Contain(client) {
			break
		}
	}
	return client, ok
}

// ConnContext is for http.Server. It stores whether the client of a load balancer used TLS, if
// version 2 of the PROXY protocol says so.
func ConnContext(ctx context.Context, nc net.Conn) context.Context {
	if g, ok := nc.(*limitedConn); ok {
		nc = g.Conn
	}
	balanced, ok := nc.(*proxyproto.Conn)
	if !ok || balanced.ProxyHeader() == nil {
		return ctx
	}
	tlvs, err := balanced.ProxyHeader().TLVs()
	if err != nil {
		return ctx
	}
	if ssl, ok := tlvparse.FindSSL(tlvs); ok && ssl.ClientSSL() {
		return context.WithValue(ctx, encryptedContextKey{}, true)
	}
	return ctx
}
