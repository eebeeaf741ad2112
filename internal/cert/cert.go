// SPDX-License-Identifier: Apache-2.0

// Package cert gives the doors their TLS certificates: from a small authority
// of our own, from files, or from an NewACME authority.
package cert

import (
	"context"
	"crypto/tls"
	"net/http"
	"strings"
)

// Source is where certificates come from. NewSelfSigned, NewFiles and NewACME make one.
type Source struct {
	getCertificate   func(*tls.ClientHelloInfo) (*tls.Certificate, error)
	private          bool     // nobody else knows the authority
	protos           []string // that the source itself needs on the HTTPS port
	challengeHandler func(next http.Handler) http.Handler
	start            func(ctx context.Context) error
	close            func()
}

// TLSConfig returns the configuration of a door that speaks the given ALPN
// protocols: TLS 1.2 or newer, the certificate by the name that the client
// asks for, and the host's own if it asks for none or one that we do not
// serve. The HTTPS door names its protocols; a mail door names none, since
// else it would have to refuse clients that offer only others (RFC 7301 §3.2).
func (s *Source) TLSConfig(protos ...string) *tls.Config {
	c := &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: s.getCertificate}
	if len(protos) > 0 {
		c.NextProtos = append(protos[:len(protos):len(protos)], s.protos...)
	}
	return c
}

// HTTPChallengeHandler wraps the handler of the plain HTTP door so that an NewACME authority
// finds its answers there (RFC 8555 §8.3). Other sources return next as it is.
func (s *Source) HTTPChallengeHandler(next http.Handler) http.Handler {
	if s.challengeHandler == nil {
		return next
	}
	return s.challengeHandler(next)
}

// Start begins to obtain what is missing, in the background. Call it when the
// doors are open: the authority will knock at them.
func (s *Source) Start(ctx context.Context) error {
	if s.start == nil {
		return nil
	}
	return s.start(ctx)
}

// Close ends all background work.
func (s *Source) Close() {
	if s.close != nil {
		s.close()
	}
}

// serverName returns the name that a client asks for in its one form, or ""
// if it asks for none or for something that is no host name.
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
