// SPDX-License-Identifier: Apache-2.0

package doctor_test

import (
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/mailstead/mailstead/internal/cert/certtest"
	"github.com/mailstead/mailstead/internal/dns/dnstest"
	"github.com/mailstead/mailstead/internal/doctor"
	"github.com/mailstead/mailstead/internal/route"
	"github.com/mailstead/mailstead/internal/spam"
)

const greets = "220 relay.example.com ESMTP\r\n250-relay.example.com\r\n250 AUTH PLAIN\r\n221 2.0.0 bye\r\n"

// saysOverTLS is says with TLS from the first byte.
func saysOverTLS(t *testing.T, config *tls.Config, text string) (port int) {
	t.Helper()
	return saysAt(t, func(network, address string) (net.Listener, error) { return tls.Listen(network, address, config) }, text)
}

func TestRelay(t *testing.T) {
	authority := certtest.New(t, "known")
	server, _ := dnstest.Start(t, "relay.example.com. A 127.0.0.1")
	right, wrong := authority.ServerConfig("relay.example.com"), authority.ServerConfig("other.example.com")
	for _, c := range []struct {
		url    string
		status doctor.Status
		says   string
	}{
		{fmt.Sprintf("smtps://me:hunter2@relay.example.com:%d", saysOverTLS(t, right, greets)), doctor.OK, "answers, with TLS 1.3"},
		{fmt.Sprintf("smtps://me:hunter2@relay.example.com:%d", saysOverTLS(t, wrong, greets)), doctor.Error, "certificate is valid for other.example.com"},
		{fmt.Sprintf("smtps://me:hunter2@relay.example.com:%d", saysOverTLS(t, right, strings.Replace(greets, "AUTH PLAIN", "SIZE", 1))), doctor.Error, "offers no way to sign in"},
		{fmt.Sprintf("smtp://relay.example.com:%d", says(t, greets)), doctor.Warning, "without TLS"},
		{fmt.Sprintf("smtp://me:hunter2@relay.example.com:%d", says(t, greets)), doctor.Error, "STARTTLS"},
		{fmt.Sprintf("smtp://relay.example.com:%d", says(t, "554 go away\r\n")), doctor.Error, "go away"},
		{fmt.Sprintf("smtp://relay.example.com:%d", nobody(t)), doctor.Error, "refused"},
		{"smtp://nowhere.example.com:25", doctor.Error, "could not be found out"},
	} {
		u, err := url.Parse(c.url)
		if err != nil {
			t.Fatal(err)
		}
		smart, err := route.ParseSmartHost(u)
		if err != nil {
			t.Fatal(err)
		}
		out := doctor.Outgoing{EHLOName: host, Router: &route.Router{DNS: dnstest.Resolver(t, server), SmartHost: smart, Roots: authority.Pool()}}
		expect(t, out.CheckRelay, c.status, c.says)
		for _, f := range look(t, out.CheckRelay) {
			if strings.Contains(f.Message+f.Fix, "hunter2") {
				t.Errorf("the password is told: %+v", f)
			}
		}
	}
}

func TestProbe(t *testing.T) {
	server, _ := dnstest.Start(t, "example.org. MX 10 mx.example.org.", "mx.example.org. A 127.0.0.1", "null.example. MX 0 .")
	probe := func(port int, domain string, status doctor.Status, part string) {
		t.Helper()
		out := doctor.Outgoing{EHLOName: host, Router: &route.Router{
			DNS: dnstest.Resolver(t, server), HostName: host, AllowNets: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}, Port: uint16(port),
		}}
		expect(t, out.CheckProbe(domain), status, part)
	}
	probe(says(t, greets), "example.org", doctor.OK, "mx.example.org [127.0.0.1] greets, with no TLS")
	probe(says(t, strings.Replace(greets, "AUTH PLAIN", "STARTTLS", 1)), "example.org", doctor.OK, "greets, with no TLS") // it hangs up instead
	probe(nobody(t), "example.org", doctor.Error, "no host of example.org could be reached")
	probe(25, "null.example", doctor.Error, "accepts no mail")
}

func TestFilters(t *testing.T) {
	answers := "pong\r\n"
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/ping" {
			http.NotFound(w, r)
			return
		}
		_, _ = io.WriteString(w, answers)
	}))
	t.Cleanup(web.Close)
	rspamd := func(url string) *spam.Rspamd {
		t.Helper()
		s, err := spam.NewRspamd(url, time.Second)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	away := dnstest.ClosedAddr(t)
	expect(t, doctor.CheckRspamd(rspamd(web.URL+"/"), true), doctor.OK, "answers")
	expect(t, doctor.CheckRspamd(rspamd(web.URL+"/other"), false), doctor.Warning, "404")
	expect(t, doctor.CheckRspamd(rspamd("http://"+away), false), doctor.Warning, "taken in without it")
	expect(t, doctor.CheckRspamd(rspamd("http://"+away), true), doctor.Error, "no mail from outside is taken in")

	clamd := func(addr string) *spam.Clamav {
		t.Helper()
		s, err := spam.NewClamav(addr, time.Second)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	at := func(port int) string { return fmt.Sprintf("127.0.0.1:%d", port) }
	expect(t, doctor.CheckClamd(clamd(at(says(t, "PONG\x00"))), true), doctor.OK, "answers")
	expect(t, doctor.CheckClamd(clamd(at(says(t, "UNKNOWN COMMAND\x00"))), false), doctor.Warning, "UNKNOWN COMMAND")
	expect(t, doctor.CheckClamd(clamd(away), true), doctor.Error, "no mail from outside is taken in")
	expect(t, doctor.CheckClamd(clamd("/nowhere/clamd.sock"), false), doctor.Warning, "no such file")
}
