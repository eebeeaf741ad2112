// SPDX-License-Identifier: Apache-2.0

package main_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/mailstead/mailstead/internal/db/dbtest"
)

// A setting can be a flag, a variable or a key in the file, in this order of precedence.
func TestSettings(t *testing.T) {
	file := filepath.Join(t.TempDir(), "mailstead.toml")
	text := "host = \"file.example.com\"\nnode = \"file\"\ntls = \"self-signed\"\ndrain = \"9s\"\nallow_private = [\"10.0.0.0/8\", \"192.168.0.0/16\"]\ntrust-resolver = true\nmax_quota_mb = 7\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		env, args []string
		want      string
	}{
		{nil, []string{"--config", file}, "host=file.example.com node=file "},
		{[]string{"MAILSTEAD_CONFIG=" + file}, nil, "host=file.example.com node=file "},
		{[]string{"MAILSTEAD_CONFIG="}, []string{"--host", "flag.example.com", "--node", "flag", "--tls", "self-signed"}, "host=flag.example.com node=flag "},
		{[]string{"MAILSTEAD_NODE=variable"}, []string{"--config", file}, "host=file.example.com node=variable "},
		{[]string{"MAILSTEAD_NODE=variable", "MAILSTEAD_HOST=variable.example.com"}, []string{"--config", file, "--node", "flag"},
			"host=variable.example.com node=flag "},
	} {
		s := serve(t, c.env, append(c.args, "--data", t.TempDir())...)
		if !strings.Contains(s.ready, c.want) {
			t.Errorf("%v %v: %s, want %s", c.env, c.args, s.ready, c.want)
		}
		s.stop()
	}
}

// Operator tasks: start, create accounts and keys while the service runs, stop.
func TestServe(t *testing.T) {
	dbtest.EachEmptyURL(t, func(t *testing.T, url string) {
		data := t.TempDir()
		where := []string{"--data", data}
		if strings.HasPrefix(url, "postgres") {
			where = append(where, "--database", url)
		}
		with := func(args ...string) []string { return append(args, where...) }
		refused(t, "no service has run", nil, with("account", "create", "--email", "you@example.com")...) // for example a misspelled name
		s := serve(t, nil, with("--host", "mail.example.com", "--tls", "self-signed", "--postmaster", "root@example.com")...)
		// Another process with the same data directory, and one with the same ports.
		refused(t, "another process uses the data folder", nil, append(s.Args[1:], "--port-base", "20000")...)
		other := append(s.Args[1:], "--data", t.TempDir())
		status, _, stderr := run(t, nil, other...)
		if status != 1 || !strings.Contains(stderr, "port: listen tcp 127.0.0.1:") || !strings.Contains(stderr, "address already in use") {
			t.Errorf("ports in use: status %d, %s", status, stderr)
		}

		status, out, stderr := run(t, nil, with("account", "create", "--email", "you@example.com", "--name", "You")...)
		words := strings.Fields(out)
		if status != 0 || len(words) < 5 || words[0] != "account" {
			t.Fatalf("account create: status %d, %q, %q", status, out, stderr)
		}
		s.ask(words[4], 200)
		refused(t, "mailstead: There is an account with this e-mail address already", nil, with("account", "create", "--email", "You@example.com")...)
		status, out, stderr = run(t, nil, with("key", "create", "--email", "you@example.com", "--scope", "events.read", "--expires", "2w1h")...)
		if status != 0 {
			t.Fatalf("key create: status %d, %q", status, stderr)
		}
		s.ask(strings.TrimSpace(out), 403)
		s.ask("ms_wrong", 401)
		create := func(args ...string) []string {
			return with(append([]string{"key", "create", "--email", "you@example.com"}, args...)...)
		}
		refused(t, "mailstead: --expires: This time", nil, create("--expires=-1h")...)
		refused(t, "--expires: give a length of time", nil, create("--expires", "30x")...)
		refused(t, "mailstead: --network: Give an IP address", nil, create("--network", "1.2.3,4")...)
		refused(t, "mailstead: --scope: The scopes are", nil, create("--scope", "x,y")...)
		refused(t, "--sends-per-hour: Give 1 to", nil, create("--name=", "--sends-per-hour=-1")...)
		refused(t, "--email: there is no such account", nil, with("key", "create", "--email", "me@example.com")...)
		refused(t, "--email: there is no such user", nil, with("user", "link", "--email", "ann@example.com", "--host", "mail.example.com")...)
		refused(t, "--account: there is no such account", nil, with("user", "link", "--email", "ann@example.com", "--host", "mail.example.com", "--account", "x")...)
		refused(t, "--host: this is not a host name", nil, with("user", "link", "--email", "you@example.com", "--host", "a b")...)
		refused(t, "exclude each other", nil, with("user", "link", "--email", "you@example.com", "--host", "mail.example.com", "--account", "x", "--operator")...)
		s.stop()
		// Again with the existing data.
		s = serve(t, nil, with("--host", "mail.example.com", "--tls", "self-signed")...)
		s.ask(words[4], 200)
		s.stop()
	})
}

// A start that hangs, here on a file without data, ends with the second signal.
func TestServeGivenUp(t *testing.T) {
	silent := filepath.Join(t.TempDir(), "roots.pem")
	if err := syscall.Mkfifo(silent, 0o600); err != nil {
		t.Fatal(err)
	}
	c := command(t, nil, "serve", "--host", "mail.example.com", "--data", t.TempDir(), "--tls", "self-signed", "--trust-roots", silent)
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	held, err := os.OpenFile(silent, os.O_WRONLY, 0) // once the service reads
	if err != nil {
		t.Fatal(err)
	}
	defer held.Close() //nolint:errcheck // nothing is written
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = c.Wait()
	}()
	pace := time.NewTicker(20 * time.Millisecond) // many at once would overrun the runtime's own handler
	defer pace.Stop()
	for {
		_ = c.Process.Signal(syscall.SIGTERM)
		select {
		case <-ended:
			if status, ok := c.ProcessState.Sys().(syscall.WaitStatus); !ok || status.Signal() != syscall.SIGTERM {
				t.Errorf("it ended with %v", c.ProcessState)
			}
			return
		case <-pace.C:
		}
	}
}

// ask lists the domains with a key.
func (s *service) ask(key string, want int) {
	s.t.Helper()
	r, err := http.NewRequestWithContext(s.t.Context(), "GET", "https://"+s.addr(443)+"/api/v1/domains", nil)
	if err != nil {
		s.t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+key)
	r.Close = true
	client := http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}} // it is self-signed
	answer, err := client.Do(r)
	if err != nil {
		s.t.Fatal(err)
	}
	_ = answer.Body.Close()
	if answer.StatusCode != want {
		s.t.Errorf("status %d, want %d", answer.StatusCode, want)
	}
}

// With --tls and certificate files, all listeners use that certificate.
func TestServeCertificateFiles(t *testing.T) {
	dir := t.TempDir()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(42), DNSNames: []string{"mail.example.com"}, NotAfter: time.Now().Add(time.Hour)}
	cert, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	for name, block := range map[string]*pem.Block{"cert.pem": {Type: "CERTIFICATE", Bytes: cert}, "key.pem": {Type: "PRIVATE KEY", Bytes: private}} {
		if err := os.WriteFile(filepath.Join(dir, name), pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	s := serve(t, nil, "--host", "mail.example.com", "--data", filepath.Join(dir, "data"), "--tls", filepath.Join(dir, "cert.pem")+","+filepath.Join(dir, "key.pem"))
	for _, port := range []int{443, 465, 993} {
		c, err := tls.Dial("tcp", s.addr(port), &tls.Config{InsecureSkipVerify: true})
		if err != nil {
			t.Fatal(err)
		}
		if got := c.ConnectionState().PeerCertificates[0].SerialNumber; got.Cmp(template.SerialNumber) != 0 {
			t.Errorf("port %d shows certificate %v", port, got)
		}
		_ = c.Close()
	}
	s.stop()
}
