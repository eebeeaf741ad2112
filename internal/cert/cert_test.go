// SPDX-License-Identifier: Apache-2.0

package cert

import (
	"crypto/tls"
	"crypto/x509"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
)

// handshake connects to a server over TCP and returns the connection state.
func handshake(t *testing.T, listener *tls.Config, client *tls.Config) (tls.ConnectionState, error) {
	t.Helper()
	ln, err := tls.Listen("tcp", "127.0.0.1:0", listener)
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan struct{})
	go func() {
		defer close(served)
		if c, err := ln.Accept(); err == nil {
			_ = c.(*tls.Conn).Handshake() // the client returns the error
			_ = c.Close()
		}
	}()
	defer func() {
		_ = ln.Close()
		<-served
	}()
	c, err := tls.Dial("tcp", ln.Addr().String(), client)
	if err != nil {
		return tls.ConnectionState{}, err
	}
	defer func() { _ = c.Close() }()
	return c.ConnectionState(), nil
}

// leaf returns the certificate that a server presents for a name, without verifying it.
func leaf(t *testing.T, s *Source, name string) *x509.Certificate {
	t.Helper()
	state, err := handshake(t, s.TLSConfig(), &tls.Config{ServerName: name, InsecureSkipVerify: true})
	if err != nil {
		t.Fatal(err)
	}
	return state.PeerCertificates[0]
}

func trust(t *testing.T, pemFile string) *x509.CertPool {
	t.Helper()
	text, err := os.ReadFile(pemFile)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(text) {
		t.Fatal("no certificate in", pemFile)
	}
	return pool
}

func TestTLSConfig(t *testing.T) {
	dir := t.TempDir()
	s, err := NewSelfSigned(SelfSignedOptions{Dir: dir, Host: "mail.demo.test"})
	if err != nil {
		t.Fatal(err)
	}
	client := &tls.Config{ServerName: "mail.demo.test", RootCAs: trust(t, CAFile(dir)), NextProtos: []string{"h2", "http/1.1"}}
	state, err := handshake(t, s.TLSConfig("h2", "http/1.1"), client)
	if err != nil || state.NegotiatedProtocol != "h2" || state.Version != tls.VersionTLS13 {
		t.Errorf("%v, protocol %q, version %x", err, state.NegotiatedProtocol, state.Version)
	}
	client.MaxVersion = tls.VersionTLS12
	client.NextProtos = []string{"imap"}
	if _, err := handshake(t, s.TLSConfig(), client); err != nil {
		t.Error("a mail client with ALPN at a mail port:", err)
	}
	client.MinVersion, client.MaxVersion = tls.VersionTLS10, tls.VersionTLS11
	if _, err := handshake(t, s.TLSConfig(), client); err == nil {
		t.Error("TLS 1.1 went through")
	}
	if err := s.Start(t.Context()); err != nil {
		t.Error(err)
	}
	s.Close()
	if next := http.NotFoundHandler(); s.HTTPChallengeHandler(next) == nil {
		t.Error("no handler")
	}
	protos := make([]string, 1, 10)
	(&Source{protos: []string{acmeProto}}).TLSConfig(protos...)
	if slices.Contains(protos[:2], acmeProto) {
		t.Error("writes into the caller's slice")
	}
}

func TestServerName(t *testing.T) {
	long := strings.Repeat("a", 64)
	for in, want := range map[string]string{
		"": "", "Mail.Demo.TEST": "mail.demo.test", "a.test.": "a.test", "xn--mnchen-3ya.test": "xn--mnchen-3ya.test",
		"a..test": "", ".": "", "../../etc/passwd": "", "a b": "", "-a.test": "", "a-.test": "", "*.test": "", "ü.test": "", "a\x00.test": "",
		long + ".test": "", strings.Repeat("a.", 127): "", strings.Repeat(long[:60]+".", 5) + "test": "",
	} {
		if in == strings.Repeat("a.", 127) {
			want = strings.TrimSuffix(in, ".") // 253 characters are allowed
		}
		if got := serverName(&tls.ClientHelloInfo{ServerName: in}); got != want {
			t.Errorf("%q gives %q, want %q", in, got, want)
		}
	}
}

func FuzzServerName(f *testing.F) {
	for _, s := range []string{"", "mail.demo.test", "A.", "..", "*.a", "a\x00b"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		name := serverName(&tls.ClientHelloInfo{ServerName: s})
		if name == "" {
			return
		}
		if len(name) > 253 || strings.ContainsAny(name, "/\\*\x00 ") || strings.Contains(name, "..") || name != strings.ToLower(name) {
			t.Fatalf("%q gives %q", s, name)
		}
	})
}
