// SPDX-License-Identifier: Apache-2.0

package server

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

// encryptedKey marks in a request's context whether its client used TLS, where a
// trusted proxy ended it.
type encryptedKey struct{}

// isEncrypted reports whether a request was encrypted on its way from the client:
// by our own TLS, or up to a trusted proxy that ended it.
func isEncrypted(r *http.Request) bool {
	yes, _ := r.Context().Value(encryptedKey{}).(bool)
	return yes || r.TLS != nil
}

// isProxied reports whether a trusted proxy brought a request, which then shares
// its connection with those of other clients.
func isProxied(r *http.Request) bool {
	_, ok := r.Context().Value(encryptedKey{}).(bool)
	return ok
}

// httpProxies reads who the client of a request is from the headers of trusted
// HTTP proxies (--http-proxy-from). Nobody else's headers are read.
type httpProxies []netip.Prefix

// handler passes requests on to next, those of a trusted proxy as its client's.
func (p httpProxies) handler(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		peer, err := netip.ParseAddrPort(r.RemoteAddr)
		if err != nil || !p.trusts(peer.Addr()) {
			next.ServeHTTP(w, r)
			return
		}
		client, ok := p.clientAddr(r.Header.Values("X-Forwarded-For"))
		proto := strings.ToLower(strings.Join(r.Header.Values("X-Forwarded-Proto"), ","))
		if !ok || proto != "https" && proto != "http" {
			http.Error(w, "The proxy in front of this server must set X-Forwarded-For to the client's address and X-Forwarded-Proto to https or http.", http.StatusBadGateway)
			return
		}
		r = r.WithContext(context.WithValue(r.Context(), encryptedKey{}, proto == "https"))
		r.RemoteAddr = netip.AddrPortFrom(client, 0).String()
		next.ServeHTTP(w, r)
	})
}

// clientAddr is the last address of X-Forwarded-For that is no trusted proxy: each
// proxy appends its peer, and what stands before that may be the client's own
// invention.
func (p httpProxies) clientAddr(headers []string) (client netip.Addr, ok bool) {
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
		if !p.trusts(client) {
			break
		}
	}
	return client, ok
}

func (p httpProxies) trusts(from netip.Addr) bool {
	return slices.ContainsFunc(p, func(n netip.Prefix) bool { return n.Contains(from.Unmap().WithZone("")) })
}

// connContext notes of a connection through a balancer whether the client used
// TLS up to there, if version 2 of the PROXY protocol says so.
func connContext(ctx context.Context, nc net.Conn) context.Context {
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
		return context.WithValue(ctx, encryptedKey{}, true)
	}
	return ctx
}
