// SPDX-License-Identifier: Apache-2.0

package interop

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mailstead/mailstead/internal/account"
	"github.com/mailstead/mailstead/internal/cert/certtest"
	"github.com/mailstead/mailstead/internal/dns/dnstest"
	"github.com/mailstead/mailstead/internal/server"
	"github.com/mailstead/mailstead/internal/server/servertest"
)

// A real nginx terminates TLS in front of the service, configured as in docs/operating.md: the API
// works through it, with the client's own address.
func TestNginxInFront(t *testing.T) {
	const host, proxy = "mail.front.example", "127.0.0.5"
	resolver, _ := dnstest.Start(t, host+". A 127.0.0.1")
	base := servertest.FreePortBase(t)
	s := servertest.Start(t, func(c *server.Config) {
		servertest.ServeMode(host, resolver, c.TLS, "")(c)
		c.PortBase, c.HTTPProxyFrom = base, []string{proxy + "/32"}
	})
	a, err := s.Accounts.Create(t.Context(), "ann@front.example", "")
	if err != nil {
		t.Fatal(err)
	}
	_, key, err := s.Accounts.CreateKey(t.Context(), a.ID, account.KeyParams{Name: "here", Networks: []string{"127.0.0.1"}})
	if err != nil {
		t.Fatal(err)
	}

	guide, err := os.ReadFile("../../docs/operating.md")
	if err != nil {
		t.Fatal(err)
	}
	_, location, found := strings.Cut(string(guide), "```nginx\n")
	location, _, ended := strings.Cut(location, "```")
	if !found || !ended || !strings.Contains(location, "http://10.0.0.9:80;") {
		t.Fatal("the guide has no settings for nginx")
	}
	location = strings.Replace(location, "http://10.0.0.9:80;", fmt.Sprintf("http://127.0.0.1:%d; proxy_bind %s;", base+80, proxy), 1)

	dir, addr := t.TempDir(), dnstest.ClosedAddr(t)
	authority := certtest.New(t, "Front")
	made := authority.ServerConfig(host).Certificates[0]
	private, err := x509.MarshalPKCS8PrivateKey(made.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "cert.pem"), string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: made.Certificate[0]})))
	write(t, filepath.Join(dir, "key.pem"), string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private})))
	write(t, filepath.Join(dir, "nginx.conf"), strings.NewReplacer("DIR", dir, "ADDR", addr, "LOCATION", location).Replace(`
daemon off; master_process off; pid DIR/pid; error_log stderr;
events { worker_connections 64; }
http {
  access_log off;
  client_body_temp_path DIR/body; proxy_temp_path DIR/proxy; fastcgi_temp_path DIR/f; uwsgi_temp_path DIR/u; scgi_temp_path DIR/s;
  server {
    listen ADDR ssl; ssl_certificate DIR/cert.pem; ssl_certificate_key DIR/key.pem;
    LOCATION
  }
}`))
	daemon(t, func() error {
		nc, err := net.Dial("tcp", addr)
		if err == nil {
			err = nc.Close()
		}
		return err
	}, "nginx", "-c", filepath.Join(dir, "nginx.conf"), "-e", "stderr")

	roots := x509.NewCertPool()
	roots.AddCert(authority.Cert)
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, ServerName: host}, DisableKeepAlives: true}}
	get := func(base, path string, headers ...string) (int, http.Header, string) {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, base+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Host = host
		r.Header.Set("Authorization", "Bearer "+key)
		for _, h := range headers {
			name, value, _ := strings.Cut(h, ": ")
			r.Header.Set(name, value)
		}
		resp, err := client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode, resp.Header, string(text)
	}
	if status, _, text := get("https://"+addr, "/api/v1/domains"); status != http.StatusOK {
		t.Errorf("the API through nginx: %d\n%s", status, text)
	}
	// A client can't choose its address: nginx appends the real one.
	if status, _, text := get("https://"+addr, "/api/v1/domains", "X-Forwarded-For: 192.0.2.1", "X-Forwarded-Proto: http"); status != http.StatusOK {
		t.Errorf("with an address of its own: %d\n%s", status, text)
	}
	if status, header, text := get("https://"+addr, "/sign-in"); status != http.StatusOK || header.Get("Strict-Transport-Security") == "" {
		t.Errorf("the page to sign in: %d %v\n%s", status, header, text)
	}
	if status, _, _ := get(fmt.Sprintf("http://127.0.0.1:%d", base+80), "/api/v1/domains", "X-Forwarded-For: 127.0.0.1", "X-Forwarded-Proto: https"); status != http.StatusForbidden {
		t.Errorf("past nginx: %d", status)
	}
}
