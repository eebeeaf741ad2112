// SPDX-License-Identifier: Apache-2.0

package server_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/pires/go-proxyproto"
	"github.com/pires/go-proxyproto/tlvparse"

	"github.com/mailstead/mailstead/internal/account"
	"github.com/mailstead/mailstead/internal/audit"
	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/db/dbtest"
	"github.com/mailstead/mailstead/internal/dns/dnstest"
	"github.com/mailstead/mailstead/internal/server"
	"github.com/mailstead/mailstead/internal/server/servertest"
)

// webClient makes requests to the HTTP port of a service. It follows no redirects.
type webClient struct {
	t    *testing.T
	port int
	http http.Client
}

// newWebClient connects from an address of loopback, and first sends the bytes of a load balancer.
func newWebClient(t *testing.T, port int, from string, first []byte) *webClient {
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
	transport := &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, addr string) (net.Conn, error) {
		nc, err := d.DialContext(ctx, "tcp", addr)
		if err == nil && len(first) > 0 {
			_, err = nc.Write(first)
		}
		return nc, err
	}}
	return &webClient{t, port, http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}}
}

type webAnswer struct {
	StatusCode int
	Header     http.Header
}

// do makes a request, whose headers are given as Name: value.
func (c *webClient) do(method, path, body string, headers ...string) (webAnswer, string) {
	c.t.Helper()
	r, err := http.NewRequestWithContext(c.t.Context(), method, fmt.Sprintf("http://127.0.0.1:%d%s", c.port, path), strings.NewReader(body))
	if err != nil {
		c.t.Fatal(err)
	}
	r.Host = clearHost
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		if r.Header.Add(name, value); name == "Host" {
			r.Host = value
		}
	}
	resp, err := c.http.Do(r)
	if err != nil {
		c.t.Fatal(err)
	}
	defer resp.Body.Close() //nolint:errcheck // only read
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		c.t.Fatal(err)
	}
	return webAnswer{resp.StatusCode, resp.Header}, string(text)
}

const clearHost = "mail.clear.example"

// startServing starts a service that is not the sandbox, with a domain and a key.
func startServing(t *testing.T, url string, options ...servertest.Option) (s *servertest.Server, acc db.ID, key string) {
	t.Helper()
	resolver, zone := dnstest.Start(t, clearHost+". A 127.0.0.1")
	base := servertest.FreePortBase(t)
	s = servertest.Start(t, append(options, servertest.Database(url), func(c *server.Config) {
		servertest.ServeMode(clearHost, resolver, c.TLS, "")(c)
		c.PortBase = base
	})...)
	a, err := s.Accounts.Create(t.Context(), "ann@clear.example", "")
	if err != nil {
		t.Fatal(err)
	}
	d, err := s.Domains.Create(t.Context(), a.ID, "clear.example")
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range d.Records {
		zone.Publish(r.Type, r.Name, r.Value, r.Priority)
	}
	if d, err = s.Domains.CheckDNS(t.Context(), a.ID, d.ID); err != nil || !d.Receives {
		t.Fatalf("%+v, %v", d, err)
	}
	_, key, err = s.Accounts.CreateKey(t.Context(), a.ID, account.KeyParams{Name: "shop"})
	if err != nil {
		t.Fatal(err)
	}
	return s, a.ID, key
}

// Without TLS the service executes no API call, accepts no login and sets no cookie. It records the
// exposed key for its owner.
func TestNoSecretsInClear(t *testing.T) {
	dbtest.EachURL(t, func(t *testing.T, url string) {
		s, acc, key := startServing(t, url)
		c := newWebClient(t, s.Config.PortBase+80, "127.0.0.1", nil)

		exposed := func() account.Key {
			t.Helper()
			all, _, err := s.Accounts.Keys(t.Context(), acc, db.Page{Limit: 10})
			if err != nil || len(all) != 1 {
				t.Fatalf("%+v, %v", all, err)
			}
			return all[0]
		}
		if at := exposed().ExposedAt; !at.IsZero() {
			t.Errorf("a fresh key was exposed at %v", at)
		}
		for _, auth := range []string{"X-Nothing: here", "Authorization: Bearer ms_unknown", "Authorization: Bearer " + key} {
			resp, text := c.do("POST", "/api/v1/domains", `{"name":"other.example"}`, "Content-Type: application/json", auth)
			if resp.StatusCode != 403 || !strings.Contains(text, `"https_required"`) || strings.Contains(text, key) {
				t.Errorf("an API call in clear with %.20s: %d %s", auth, resp.StatusCode, text)
			}
		}
		if all, _, err := s.Domains.List(t.Context(), acc, db.Page{Limit: 10}); err != nil || len(all) != 1 {
			t.Errorf("the call in clear was carried out: %+v, %v", all, err)
		}
		first := exposed()
		if first.ExposedAt.IsZero() {
			t.Error("it is not noted that the key was sent in clear")
		}
		c.do("GET", "/api/v1/domains", "", "Authorization: Bearer "+key)
		entries, _, err := s.Audit.List(t.Context(), acc, db.Page{Limit: 10})
		if err != nil || len(entries) != 1 || entries[0].Actor.Kind != audit.ActorAPIKey || entries[0].Actor.Name != "shop" || !strings.HasPrefix(entries[0].Description, "Sent the API key without TLS.") {
			t.Errorf("the audit log has %+v, %v", entries, err)
		}
		if again := exposed(); !again.ExposedAt.Equal(first.ExposedAt) || !again.LastUsedAt.IsZero() {
			t.Errorf("noted twice in a day, or as a use: %+v", again)
		}

		secure := fmt.Sprintf("https://%s:%d", clearHost, s.Config.PortBase+443)
		for _, one := range []struct {
			method, path, host string
			status             int
			to                 string
		}{
			{"GET", "/", clearHost, 302, secure + "/"},
			{"HEAD", "/sign-in?to=/keys", clearHost, 302, secure + "/sign-in?to=/keys"},
			{"GET", "//evil.example/x", clearHost, 302, secure + "/evil.example/x"},
			{"GET", "/mailboxes", "other.example", 302, secure + "/mailboxes"},
			{"GET", "/u/token", clearHost, 302, secure + "/u/token"},
			{"GET", "/autodiscover/autodiscover.xml", "autodiscover.clear.example", 302, secure + "/autodiscover/autodiscover.xml"},
			{"POST", "/sign-in", clearHost, 403, ""},
			{"POST", "/u/token", clearHost, 403, ""},
			{"PUT", "/x", clearHost, 403, ""},
			{"GET", "/api", clearHost, 403, ""},
			{"GET", "/api/v1/openapi.json", "other.example", 403, ""},
			{"GET", "/mail/config-v1.1.xml", "autoconfig.clear.example", 200, ""},
			{"GET", "/.well-known/autoconfig/mail/config-v1.1.xml?emailaddress=x@clear.example", "clear.example", 200, ""},
			{"POST", "/mail/config-v1.1.xml", "autoconfig.clear.example", 403, ""},
			{"GET", "/.well-known/mta-sts.txt", "mta-sts.clear.example", 200, ""},
			{"GET", "/.well-known/acme-challenge/x", clearHost, 302, secure + "/.well-known/acme-challenge/x"},
		} {
			resp, text := c.do(one.method, one.path, "", "Host: "+one.host, "Cookie: session=x", "X-Forwarded-Proto: https", "X-Forwarded-For: 192.0.2.1")
			if resp.StatusCode != one.status || resp.Header.Get("Location") != one.to || resp.Header.Get("Set-Cookie") != "" {
				t.Errorf("%s %s of %s: %d to %q, %v\n%s", one.method, one.path, one.host, resp.StatusCode, resp.Header.Get("Location"), resp.Header["Set-Cookie"], text)
			}
		}
	})
}

// A trusted HTTP proxy sends its client's address, and whether the client used TLS.
func TestHTTPProxy(t *testing.T) {
	const trusted, second = "127.0.0.5", "127.0.0.6"
	dbtest.EachURL(t, func(t *testing.T, url string) {
		s, acc, _ := startServing(t, url, func(c *server.Config) { c.HTTPProxyFrom = []string{trusted + "/32", second + "/32"} })
		_, key, err := s.Accounts.CreateKey(t.Context(), acc, account.KeyParams{Name: "office", Networks: []string{"192.0.2.0/24", "2001:db8::/32"}})
		if err != nil {
			t.Fatal(err)
		}
		auth := "Authorization: Bearer " + key
		for _, one := range []struct {
			name, from string
			headers    []string
			status     int
		}{
			{"encrypted", trusted, []string{"X-Forwarded-For: 192.0.2.7", "X-Forwarded-Proto: https"}, 200},
			{"with a port", trusted, []string{"X-Forwarded-For: [2001:db8::1]:4711", "X-Forwarded-Proto: https"}, 200},
			{"through two proxies", trusted, []string{"X-Forwarded-For: 192.0.2.7, " + second, "X-Forwarded-Proto: https"}, 200},
			{"in two fields", trusted, []string{"X-Forwarded-For: 198.51.100.1", "X-Forwarded-For: 192.0.2.7", "X-Forwarded-Proto: https"}, 200},
			{"a client that invents an address", trusted, []string{"X-Forwarded-For: 192.0.2.7, 198.51.100.1", "X-Forwarded-Proto: https"}, 403},
			{"the wrong network", trusted, []string{"X-Forwarded-For: 198.51.100.1", "X-Forwarded-Proto: https"}, 403},
			{"in clear up to the proxy", trusted, []string{"X-Forwarded-For: 192.0.2.7", "X-Forwarded-Proto: http"}, 403},
			{"no client", trusted, []string{"X-Forwarded-Proto: https"}, 502},
			{"no address", trusted, []string{"X-Forwarded-For: unknown", "X-Forwarded-Proto: https"}, 502},
			{"no protocol", trusted, []string{"X-Forwarded-For: 192.0.2.7"}, 502},
			{"two protocols", trusted, []string{"X-Forwarded-For: 192.0.2.7", "X-Forwarded-Proto: https, http"}, 502},
			{"nobody's proxy", "127.0.0.7", []string{"X-Forwarded-For: 192.0.2.7", "X-Forwarded-Proto: https"}, 403},
		} {
			c := newWebClient(t, s.Config.PortBase+80, one.from, nil)
			if resp, text := c.do("GET", "/api/v1/domains", "", append(one.headers, auth)...); resp.StatusCode != one.status {
				t.Errorf("%s: %d, want %d\n%s", one.name, resp.StatusCode, one.status, text)
			}
		}
		c := newWebClient(t, s.Config.PortBase+80, trusted, nil)
		resp, text := c.do("GET", "/sign-in", "", "X-Forwarded-For: 192.0.2.7", "X-Forwarded-Proto: https")
		if resp.StatusCode != 200 || resp.Header.Get("Strict-Transport-Security") == "" {
			t.Errorf("the page to sign in: %d %v\n%s", resp.StatusCode, resp.Header, text)
		}
	})
}

// A load balancer that ends TLS says so by version 2 of the PROXY protocol.
func TestBalancerEndsTLS(t *testing.T) {
	const trusted = "127.0.0.3"
	s, _, key := startServing(t, "", func(c *server.Config) { c.ProxyFrom = []string{trusted + "/32"} })
	header := func(tlvs ...proxyproto.TLV) []byte {
		h := proxyproto.HeaderProxyFromAddrs(2, &net.TCPAddr{IP: net.IPv4(192, 0, 2, 9), Port: 4711}, &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 80})
		if err := h.SetTLVs(tlvs); err != nil {
			t.Fatal(err)
		}
		text, err := h.Format()
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	ssl := func(client byte) proxyproto.TLV {
		tlv, err := tlvparse.PP2SSL{Client: client, TLV: []proxyproto.TLV{{Type: proxyproto.PP2_SUBTYPE_SSL_VERSION, Value: []byte("TLSv1.3")}}}.Marshal()
		if err != nil {
			t.Fatal(err)
		}
		return tlv
	}
	for name, one := range map[string]struct {
		first  []byte
		status int
	}{
		"encrypted": {header(ssl(tlvparse.PP2_BITFIELD_CLIENT_SSL)), 200},
		"in clear":  {header(ssl(0)), 403},
		"silent":    {header(), 403},
		"version 1": {[]byte("PROXY TCP4 192.0.2.9 127.0.0.1 4711 80\r\n"), 403},
	} {
		c := newWebClient(t, s.Config.PortBase+80, trusted, one.first)
		if resp, text := c.do("GET", "/api/v1/domains", "", "Authorization: Bearer "+key); resp.StatusCode != one.status {
			t.Errorf("%s: %d, want %d\n%s", name, resp.StatusCode, one.status, text)
		}
	}
}
