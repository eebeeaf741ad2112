// SPDX-License-Identifier: Apache-2.0

package webhook_test

import (
	"bufio"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/mailstead/mailstead/internal/cert/certtest"
	"github.com/mailstead/mailstead/internal/db/dbtest"
	"github.com/mailstead/mailstead/internal/dns/dnstest"
	"github.com/mailstead/mailstead/internal/egress"
	"github.com/mailstead/mailstead/internal/event"
	"github.com/mailstead/mailstead/internal/webhook"
)

// server starts a TLS receiver with a certificate of an authority.
func server(t *testing.T, by *certtest.CA, tmpl *x509.Certificate) *httptest.Server {
	t.Helper()
	leaf, key := by.Issue(tmpl)
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.TLS = &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{leaf.Raw}, PrivateKey: key}}}
	s.StartTLS()
	t.Cleanup(s.Close)
	return s
}

// raw starts a receiver that sends a fixed text to each client.
func raw(t *testing.T, say string) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			serving.Go(func() {
				defer c.Close() //nolint:errcheck // nothing to lose
				r, err := http.ReadRequest(bufio.NewReader(c))
				if err == nil {
					_ = r.Body.Close()
				}
				_, _ = c.Write([]byte(say))
			})
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		serving.Wait()
	})
	return l.Addr().String()
}

// A failure has a stable error code and a sentence.
func TestTrouble(t *testing.T) {
	authority, stranger := certtest.New(t, "known"), certtest.New(t, "stranger")
	roots := x509.NewCertPool()
	roots.AddCert(authority.Cert)
	local := []net.IP{net.IPv4(127, 0, 0, 1)}
	good := server(t, authority, &x509.Certificate{IPAddresses: local})
	expired := server(t, authority, &x509.Certificate{IPAddresses: local, NotBefore: time.Now().Add(-2 * time.Hour), NotAfter: time.Now().Add(-time.Hour)})
	other := server(t, authority, &x509.Certificate{DNSNames: []string{"other.test"}})
	unknown := server(t, stranger, &x509.Certificate{IPAddresses: local})
	plain := listen(t, nil)
	silent := listen(t, func(_ http.ResponseWriter, r request) { <-r.Context().Done() })
	dripping := listen(t, func(w http.ResponseWriter, r request) {
		_, _ = w.Write([]byte("taken"))
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	})
	addr, zone := dnstest.Start(t, "metadata.test. 0 IN A 1.1.1.1", "public.test. 0 IN A 127.0.0.1")
	zone.ServFail("broken.test")
	cases := []struct{ url, trouble, words string }{
		{good.URL, "", ""},
		{expired.URL, webhook.ErrorTLS, "it has expired"},
		{other.URL, webhook.ErrorTLS, "another host name"},
		{unknown.URL, webhook.ErrorTLS, "known authority"},
		{"https://" + plain.Listener.Addr().String(), webhook.ErrorTLS, "does not speak TLS"},
		{"http://" + good.Listener.Addr().String(), webhook.ErrorStatus, "400"},
		{"http://" + dnstest.ClosedAddr(t), webhook.ErrorRefused, "refused"},
		{"http://" + raw(t, ""), webhook.ErrorClosed, "without an answer"},
		{"http://" + raw(t, "220 mail.test ESMTP\r\n"), webhook.ErrorResponse, "not valid HTTP"},
		{"http://" + raw(t, "HTTP/1.1 200 OK\r\nX: "+strings.Repeat("x", 64<<10)+"\r\n\r\n"), webhook.ErrorResponse, "not valid HTTP"},
		{"http://" + raw(t, "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n"), webhook.ErrorStatus, "101"},
		{"http://" + raw(t, "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf"), "", ""},
		{silent.URL, webhook.ErrorTimeout, "no answer within"},
		{dripping.URL, "", ""},
		{"https://metadata.test/latest/", webhook.ErrorAddress, "not sent to"},
		{"http://public.test/", webhook.ErrorAddress, "needs https"},
		{"https://none.test/", webhook.ErrorDNS, "does not exist"},
		{"https://broken.test/", webhook.ErrorDNS, "could not be looked up"},
	}
	h := start(t, dbtest.SQLite(t), func(o *webhook.Options) {
		o.Roots, o.Timeout = roots, 3*time.Second
		o.Dialer = &egress.Dialer{DNS: dnstest.Resolver(t, addr), AllowNets: loopback}
	})
	want := map[string]int{}
	for i, c := range cases {
		w, _ := h.create(c.url)
		want[w.ID.String()] = i
	}
	zone.Set("metadata.test", "A 169.254.169.254") // it was allowed earlier
	zone.Set("public.test", "A 1.1.1.1")
	h.record(event.Bounce, 1)
	for range cases {
		o := h.outcome()
		c := cases[want[o.hook.String()]]
		_, attempts := h.delivery(o.hook, o.event)
		a := attempts[0]
		if a.Error != c.trouble || !strings.Contains(a.Detail, c.words) || (a.Detail == "") != (c.trouble == "") {
			t.Errorf("%s: %q %q, want %q %q", c.url, a.Error, a.Detail, c.trouble, c.words)
		}
	}
}

// A connection to an address that the host name no longer has is not reused. A name that now
// resolves to an internal address is not followed.
func TestRebound(t *testing.T) {
	var inside atomic.Int64
	good := listen(t, nil)
	port := good.Listener.Addr().(*net.TCPAddr).Port
	l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.2:%d", port))
	if err != nil {
		t.Fatal(err)
	}
	secret := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { inside.Add(1) }))
	_ = secret.Listener.Close()
	secret.Listener = l
	secret.Start()
	defer secret.Close()
	addr, zone := dnstest.Start(t, "rebind.test. 0 IN A 127.0.0.1")
	h := start(t, dbtest.SQLite(t), func(o *webhook.Options) {
		o.Dialer = &egress.Dialer{DNS: dnstest.Resolver(t, addr), AllowNets: []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")}}
	})
	w, _ := h.create(fmt.Sprintf("http://rebind.test:%d/", port))
	for i := range 6 {
		zone.Set("rebind.test", fmt.Sprintf("0 IN A 127.0.0.%d", 1+i%2))
		h.record(event.Bounce, 1)
		o := h.outcome()
		_, attempts := h.delivery(w.ID, o.event)
		want := ""
		if i%2 == 1 {
			want = webhook.ErrorAddress
		}
		if got := attempts[0].Error; got != want {
			t.Errorf("%d: %q, want %q", i, got, want)
		}
	}
	if good.n.Load() != 3 || inside.Load() != 0 {
		t.Errorf("%d requests to the receiver, %d inside", good.n.Load(), inside.Load())
	}
}
