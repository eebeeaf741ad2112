// SPDX-License-Identifier: Apache-2.0

// Package cert provides the TLS certificates of all servers: from a local certificate authority,
// from files, or from an ACME authority.
package cert

import (
	"context"
	"crypto/tls"
	"net/http"
	"strings"
)

// Source provides certificates. NewSelfSigned, NewFiles and NewACME create one.
type Source struct {
	getCertificate   func(*tls.ClientHelloInfo) (*tls.Certificate, error)
	private          bool     // whether the authority is known only here
	protos           []string // ALPN protocols that the source needs on the HTTPS port
	challengeHandler func(next http.Handler) http.Handler
	start            func(ctx context.Context) error
	close            func()
}

// TLSConfig returns the configuration of a server that speaks the given ALPN protocols, with TLS
// 1.2 or newer. It selects the certificate by the name that the client asks for. Without a name, or
// for a name that is not served, it uses the host's own. The HTTPS server passes its protocols. A
// mail server passes none, since it would otherwise have to reject clients that offer only others
// (RFC 7301 §3.2).
func (s *Source) TLSConfig(protos ...string) *tls.Config {
	c := &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: s.getCertificate}
	if len(protos) > 0 {
		c.NextProtos = append(protos[:len(protos):len(protos)], s.protos...)
	}
	return c
}

// HTTPChallengeHandler wraps the handler of the plain HTTP server so that it answers an ACME
// authority's challenges (RFC 8555 §8.3). Other sources return next unchanged.
func (s *Source) HTTPChallengeHandler(next http.Handler) http.Handler {
	if s.challengeHandler == nil {
		return next
	}
	return s.challengeHandler(next)
}

// Start begins to obtain missing certificates in the background. Call it after the servers have
// started: the authority connects to them.
func (s *Source) Start(ctx context.Context) error {
	if s.start == nil {
		return nil
	}
	return s.start(ctx)
}

// Close stops all background work.
func (s *Source) Close() {
	if s.close != nil {
		s.close()
	}
}

// serverName returns the name that a client asks for, in lower case and without a trailing dot. It
// returns "" if the client asks for none or for an invalid host name.
func serverName(hello *tls.ClientHelloInfo) string {
	name := strings.ToLower(strings.TrimSuffix(hello.ServerName, "."))
	if len(name) > 253 {
		return ""
	}
	for label := range strings.SplitSeq(name, ".") {
		if label == "" || len(label) > 63 || label[0] == '-' || label[len(label)-1] == '-' ||
			strings.Trim(label, "abcdefghijklmnopqrstuvwxyz0123456789-_") != "" {
			return ""
		}
	}
	return name
}
