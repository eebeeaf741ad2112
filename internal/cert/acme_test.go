// SPDX-License-Identifier: Apache-2.0

package cert

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/mailstead/mailstead/internal/dns/dnstest"
	"github.com/mailstead/mailstead/internal/needtest"
)

// pebbleCommand is the ACME authority that the tests run. It is not in go.mod, since no code of
// ours imports it.
const pebbleCommand = "github.com/letsencrypt/pebble/v2/cmd/pebble@v2.10.1"

// pebble is a running ACME authority that resolves every name to 127.0.0.1.
type pebble struct {
	url        string
	httpPort   int            // port that it uses for HTTP-01
	httpsPort  int            // port that it uses for TLS-ALPN-01
	serverCAs  *x509.CertPool // roots of its own TLS certificate
	management string
}

func startPebble(t *testing.T) *pebble {
	t.Helper()
	needtest.Full(t, "pebble")
	dir := t.TempDir()
	build := exec.CommandContext(t.Context(), "go", "install", pebbleCommand)
	build.Dir = dir
	build.Env = append(os.Environ(), "GOBIN="+dir, "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		needtest.Missing(t, "these tests need the ACME authority pebble, which go install could not build (it is fetched once from the Go module proxy): %v\n%s", err, out)
	}
	ca, err := openLocalCA(dir, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	chain, key, err := ca.issue(time.Now(), []net.IP{net.IPv4(127, 0, 0, 1)}, "localhost")
	if err != nil {
		t.Fatal(err)
	}
	certFile, keyFile := filepath.Join(dir, "pebble.pem"), filepath.Join(dir, "pebble.key")
	if _, err := writePair(certFile, keyFile, chain, key); err != nil {
		t.Fatal(err)
	}
	listen := dnstest.ClosedAddr(t)
	p := &pebble{
		url:        "https://" + listen + "/dir",
		httpPort:   dnstest.FreePort(t, "127.0.0.1"),
		httpsPort:  dnstest.FreePort(t, "127.0.0.1"),
		serverCAs:  trust(t, CAFile(dir)),
		management: dnstest.ClosedAddr(t),
	}
	config, err := json.Marshal(map[string]any{"pebble": map[string]any{
		"listenAddress": listen, "managementListenAddress": p.management,
		"certificate": certFile, "privateKey": keyFile, "httpPort": p.httpPort, "tlsPort": p.httpsPort,
		"retryAfter": map[string]int{"authz": 1, "order": 1},
		"profiles":   map[string]any{"default": map[string]any{"description": "test", "validityPeriod": 7776000}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	configFile := filepath.Join(dir, "pebble.json")
	if err := os.WriteFile(configFile, config, 0o600); err != nil {
		t.Fatal(err)
	}
	p.run(t, exec.Command(filepath.Join(dir, "pebble"), "-config", configFile, "-dnsserver", nameServer(t)))
	p.await(t, listen)
	p.await(t, p.management)
	return p
}

// run starts the program, logs its output if the test fails, and stops it after the test.
func (p *pebble) run(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	cmd.Env = append(os.Environ(), "PEBBLE_VA_NOSLEEP=1", "PEBBLE_WFE_NONCEREJECT=0")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var said strings.Builder
	read := make(chan struct{})
	go func() {
		defer close(read)
		_, _ = io.Copy(&said, bufio.NewReader(out)) // ends with the program
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-read
		_ = cmd.Wait() // killed
		if t.Failed() {
			t.Log(said.String())
		}
	})
}

// await returns once something accepts connections at addr.
func (p *pebble) await(t *testing.T, addr string) {
	t.Helper()
	retry := time.NewTicker(10 * time.Millisecond)
	defer retry.Stop()
	for range 3000 {
		if c, err := net.Dial("tcp", addr); err == nil {
			_ = c.Close()
			return
		}
		<-retry.C
	}
	t.Fatal("pebble does not answer at", addr)
}

// roots returns the roots of pebble's certificates: it creates a new root at each start.
func (p *pebble) roots(t *testing.T) *x509.CertPool {
	t.Helper()
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: p.serverCAs}, DisableKeepAlives: true}}
	res, err := client.Get("https://" + p.management + "/roots/0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(text) {
		t.Fatalf("no root in %q", text)
	}
	return pool
}

// nameServer starts a DNS server and returns its address. It answers 127.0.0.1 for every name,
// except an unused address for names that begin with astray.
func nameServer(t *testing.T) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0") // pebble asks over TCP only
	if err != nil {
		t.Fatal(err)
	}
	server := &dns.Server{Listener: ln, Handler: dns.HandlerFunc(func(w dns.ResponseWriter, q *dns.Msg) {
		m := new(dns.Msg).SetReply(q)
		m.RecursionAvailable = true
		if q.Question[0].Qtype == dns.TypeA {
			ip := net.IPv4(127, 0, 0, 1)
			if strings.HasPrefix(q.Question[0].Name, "astray.") {
				ip = net.IPv4(127, 0, 0, 9)
			}
			m.Answer = []dns.RR{&dns.A{A: ip,
				Hdr: dns.RR_Header{Name: q.Question[0].Name, Rrtype: dns.TypeA, Class: dns.ClassINET, Ttl: 1}}}
		}
		_ = w.WriteMsg(m)
	})}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = server.ActivateAndServe() // ends with its listener
	}()
	t.Cleanup(func() {
		_ = ln.Close()
		<-done
	})
	return ln.Addr().String()
}

// log passes messages about certificates to the test.
type log struct {
	slog.Handler
	lines chan string
}

func (l log) Handle(_ context.Context, r slog.Record) error {
	line := r.Message
	r.Attrs(func(a slog.Attr) bool {
		line += " " + a.Value.String()
		return true
	})
	l.lines <- line
	return nil
}

func (l log) Enabled(context.Context, slog.Level) bool { return true }

func newLog() log { return log{slog.DiscardHandler, make(chan string, 100)} }

// await waits for the next line, and fails the test if it is another one.
func (l log) await(t *testing.T, want string) {
	t.Helper()
	select {
	case got := <-l.lines:
		if got != want {
			t.Fatalf("%s, not: %s", got, want)
		}
	case <-time.After(time.Minute): // fails with pebble's output, unlike the test's own timeout
		t.Fatal("nothing happened for a minute")
	}
}

// started returns a source that has the host's certificate in use, with servers that the authority
// reaches if p is given. It is closed after the test.
func started(t *testing.T, a ACMEOptions, log log, p *pebble) *Source {
	t.Helper()
	s, err := NewACME(a)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	if p != nil {
		openListeners(t, p, s)
	}
	if err := s.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	log.await(t, "certificate in use [mail.host.test]")
	return s
}

// openListeners serves HTTP and HTTPS on the ports that pebble uses.
func openListeners(t *testing.T, p *pebble, s *Source) {
	t.Helper()
	var wg sync.WaitGroup
	t.Cleanup(wg.Wait) // runs after the cleanups below
	for port, config := range map[int]*tls.Config{p.httpPort: nil, p.httpsPort: s.TLSConfig("h2", "http/1.1")} {
		ln, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err != nil {
			t.Fatal(err)
		}
		if config != nil {
			ln = tls.NewListener(ln, config)
		}
		server := &http.Server{Handler: s.HTTPChallengeHandler(http.NotFoundHandler()), ErrorLog: slog.NewLogLogger(slog.DiscardHandler, 0)}
		wg.Go(func() { _ = server.Serve(ln) }) // ends with Close
		t.Cleanup(func() { _ = server.Close() })
	}
}

func TestACME(t *testing.T) {
	p := startPebble(t)
	roots := p.roots(t)
	for _, c := range []struct {
		name            string
		httpPort, https int
	}{{"HTTP-01", p.httpPort, 0}, {"TLS-ALPN-01", 0, p.httpsPort}} {
		t.Run(c.name, func(t *testing.T) {
			a := ACMEOptions{Dir: t.TempDir(), Host: "mail.host.test", DirectoryURL: p.url, Roots: p.serverCAs, Bind: "127.0.0.1",
				HTTPPort: c.httpPort, HTTPSPort: c.https, AllowName: allowDemo}
			addr, _ := dnstest.Start(t, "mail.host.test. A 127.0.0.1", "autoconfig.demo.test. CNAME mail.host.test.")
			a.DNS = dnstest.Resolver(t, addr)
			log := newLog()
			a.Log = slog.New(log)
			s := started(t, a, log, p)
			for _, name := range []string{"mail.host.test", "autoconfig.demo.test"} {
				if _, err := handshake(t, s.TLSConfig(), &tls.Config{ServerName: name, RootCAs: roots}); err != nil {
					t.Errorf("%s: %v", name, err)
				}
			}
			for _, name := range []string{"", "stranger.test"} {
				if err := leaf(t, s, name).VerifyHostname(a.Host); err != nil {
					t.Errorf("%q: %v", name, err)
				}
			}
			if pair, err := s.SigningCertificate(t.Context(), a.Host); err != nil || pair == nil || !pair.Leaf.Equal(leaf(t, s, a.Host)) {
				t.Errorf("to sign with: %v, %v", pair, err)
			}
			if kept, _, err := ACMEPair(a.Dir, a.DirectoryURL, a.Host).LoadChain(); err != nil || !kept.Equal(leaf(t, s, a.Host)) {
				t.Errorf("where it is kept: %v, %v", kept, err)
			}
			restarted(t, a, s)
		})
	}
}

// restarted checks that a second process uses the certificates of the first, without a request to
// the authority.
func restarted(t *testing.T, a ACMEOptions, first *Source) {
	t.Helper()
	log := newLog()
	a.Log = slog.New(log)
	s := started(t, a, log, nil)
	for _, name := range []string{"", "autoconfig.demo.test"} {
		if !leaf(t, s, name).Equal(leaf(t, first, name)) {
			t.Errorf("%q: another certificate after a restart", name)
		}
	}
}

// Untrusted clients choose the names, so the authority gets requests only for names that point
// here, and no immediate retry of one that failed.
func TestACMESparesTheAuthority(t *testing.T) {
	p := startPebble(t)
	addr, zone := dnstest.Start(t, "mail.host.test. A 127.0.0.1", "elsewhere.demo.test. A 127.0.0.9", "astray.demo.test. A 127.0.0.1")
	log, now := newLog(), time.Now()
	a := ACMEOptions{Dir: t.TempDir(), Host: "mail.host.test", DirectoryURL: p.url, Roots: p.serverCAs, Bind: "127.0.0.1", HTTPPort: p.httpPort, AllowName: allowDemo,
		DNS: dnstest.Resolver(t, addr), Now: func() time.Time { return now }, Log: slog.New(log)}
	s := started(t, a, log, p)
	host := func(name string) {
		t.Helper()
		if err := leaf(t, s, name).VerifyHostname(a.Host); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	zone.ServFail("broken.demo.test")
	for _, name := range []string{"elsewhere.demo.test", "new.demo.test", "broken.demo.test"} {
		host(name)
	}
	zone.Set("new.demo.test", "CNAME mail.host.test.")
	if err := leaf(t, s, "new.demo.test").VerifyHostname("new.demo.test"); err != nil {
		t.Error("published just now:", err)
	}
	log.await(t, "certificate in use [new.demo.test]")
	for range 2 {
		host("astray.demo.test")
		if got := <-log.lines; !strings.HasPrefix(got, "certificate not obtained astray.demo.test") {
			t.Error(got)
		}
		now = now.Add(failureBackoff - time.Second)
		host("astray.demo.test")
		if len(log.lines) > 0 {
			t.Error("at once again:", <-log.lines)
		}
		now = now.Add(time.Second)
	}
}

// awaitUnlocked waits until no work on the certificates of a directory is in progress.
func awaitUnlocked(t *testing.T, dir string) {
	t.Helper()
	retry := time.NewTicker(10 * time.Millisecond)
	defer retry.Stop()
	for range 3000 {
		locks, err := filepath.Glob(filepath.Join(dir, "locks", "*"))
		if err != nil {
			t.Fatal(err)
		}
		if len(locks) == 0 {
			return
		}
		<-retry.C
	}
	t.Fatal("the folder stays locked:", dir)
}

// keep stores a certificate as certmagic does, with a given time of issue.
func keep(t *testing.T, a ACMEOptions, name string, at time.Time) {
	t.Helper()
	ca, err := openLocalCA(a.Dir, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	chain, key, err := ca.issue(at, nil, name)
	if err != nil {
		t.Fatal(err)
	}
	pair := ACMEPair(a.Dir, a.DirectoryURL, name)
	if err := os.MkdirAll(filepath.Dir(pair.CertFile), 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := writePair(pair.CertFile, pair.KeyFile, chain, key); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(strings.TrimSuffix(pair.CertFile, ".crt")+".json", fmt.Appendf(nil, `{"sans":[%q]}`, name), 0o600); err != nil {
		t.Fatal(err)
	}
}

// The host's certificate stays in memory with any number of further names, because certificates
// outside of memory are not renewed.
func TestACMEHostStaysInMemory(t *testing.T) {
	log := newLog()
	a := ACMEOptions{Dir: t.TempDir(), Host: "mail.host.test", DirectoryURL: "https://" + dnstest.ClosedAddr(t) + "/dir", Bind: "127.0.0.1", HTTPPort: 1, AllowName: allowDemo,
		Log: slog.New(log), cacheCapacity: 1}
	keep(t, a, a.Host, time.Now())
	keep(t, a, "autoconfig.demo.test", time.Now())
	s := started(t, a, log, nil)
	leaf(t, s, "autoconfig.demo.test")
	log.await(t, "certificate in use [autoconfig.demo.test]")
	if err := leaf(t, s, a.Host).VerifyHostname(a.Host); err != nil {
		t.Error(err)
	}
	if len(log.lines) > 0 {
		t.Error("it was not in memory:", <-log.lines)
	}
}

// The host's certificate stays in use while its renewal fails, however many clients ask for it.
func TestACMEHostIsRenewedInTime(t *testing.T) {
	dir := t.TempDir()
	a := ACMEOptions{Dir: dir, Host: "mail.host.test", DirectoryURL: "https://" + dnstest.ClosedAddr(t) + "/dir", Bind: "127.0.0.1", HTTPPort: 1, AllowName: allowDemo}
	log := newLog()
	a.Log = slog.New(log)
	keep(t, a, a.Host, time.Now().Add(7*24*time.Hour-leafLifetime))
	t.Cleanup(func() { awaitUnlocked(t, dir) }) // once it is closed
	s := started(t, a, log, nil)
	<-log.lines // the renewal failed, and is tried again in a minute
	for _, name := range []string{a.Host, "", "stranger.test"} {
		for range 50 {
			if err := leaf(t, s, name).VerifyHostname(a.Host); err != nil {
				t.Fatalf("%q: %v", name, err)
			}
		}
	}
}

func TestACMENeedsAPort(t *testing.T) {
	if _, err := NewACME(ACMEOptions{Dir: t.TempDir(), Host: "mail.host.test"}); err == nil {
		t.Error("neither challenge can be answered, but no error")
	}
}
