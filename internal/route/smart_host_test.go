// SPDX-License-Identifier: Apache-2.0

package route_test

import (
	"errors"
	"net/url"
	"strings"
	"testing"

	"github.com/mailstead/mailstead/internal/route"
	"github.com/mailstead/mailstead/internal/smtpclient"
)

func TestParseSmartHost(t *testing.T) {
	cases := []struct {
		url    string
		host   string
		port   uint16
		tls    smtpclient.TLSMode
		verify bool
		user   string
		pass   string
	}{
		{"smtp://relay.test:25", "relay.test", 25, smtpclient.TLSOpportunistic, false, "", ""},
		{"smtp://u:p%40ss@relay.test:587", "relay.test", 587, smtpclient.TLSRequired, true, "u", "p@ss"},
		{"smtps://u:p@Relay.TEST:465", "relay.test", 465, smtpclient.TLSImplicit, true, "u", "p"},
		{"smtps://relay.test:465", "relay.test", 465, smtpclient.TLSImplicit, true, "", ""},
		{"smtp://u:p@127.0.0.1:2525", "127.0.0.1", 2525, smtpclient.TLSOpportunistic, false, "u", "p"},
		{"smtp://u:p@localhost:2525", "localhost", 2525, smtpclient.TLSOpportunistic, false, "u", "p"},
		{"smtp://u:p@[2606:4700::1]:25", "2606:4700::1", 25, smtpclient.TLSRequired, true, "u", "p"},
		{"smtps://relay.test:465?verify=no", "relay.test", 465, smtpclient.TLSImplicit, false, "", ""},
		{"smtp://u:p@relay.test:587/?verify=no", "relay.test", 587, smtpclient.TLSRequired, false, "u", "p"},
		{"smtp://relay.test:25?verify=yes", "relay.test", 25, smtpclient.TLSRequired, true, "", ""},
		{"smtp://u:p@localhost:2525?verify=yes", "localhost", 2525, smtpclient.TLSRequired, true, "u", "p"},
		{"smtp://relay:25", "relay", 25, smtpclient.TLSOpportunistic, false, "", ""},
	}
	for _, c := range cases {
		s, err := route.ParseSmartHost(parse(t, c.url))
		if err != nil {
			t.Errorf("%s: %v", c.url, err)
			continue
		}
		user, pass := "", ""
		if s.Auth != nil {
			user, pass = s.Auth.User, s.Auth.Password
		}
		if s.Host != c.host || s.Port != c.port || s.TLS != c.tls || s.Verify != c.verify || user != c.user || pass != c.pass {
			t.Errorf("%s: %+v, %s, %s", c.url, s, user, pass)
		}
	}
	for _, bad := range []string{"smtp://relay.test", "smtp://relay.test:0", "smtp://relay.test:70000", "http://relay.test:25",
		"smtp://sesame@relay.test:25", "smtp://:sesame@relay.test:25", "smtp://sesame:sesame@:25", "smtp://u:sesame@a_b:25",
		"smtp://u:sesame@relay.test:25?verify=maybe", "smtp://u:sesame@relay.test:25?tls=no", "smtp://u:sesame@relay.test:25?verify=no&verify=no",
		"smtp://u:sesame@relay.test:25/sesame", "smtp://u:sesame@relay.test:25?verify=no#sesame", "smtp://u:sesame@relay.test:25?%zz"} {
		if s, err := route.ParseSmartHost(parse(t, bad)); err == nil || strings.Contains(err.Error(), "sesame") {
			t.Errorf("%s: %+v, %v", bad, s, err)
		}
	}
}

func parse(t *testing.T, s string) *url.URL {
	t.Helper()
	u, err := url.Parse(s)
	if err != nil {
		t.Fatal(err)
	}
	return u
}

func TestSmartHostTakesAll(t *testing.T) {
	r, zone := router(t, "relay.test. A 10.0.0.1", "d.test. MX 0 .")
	r.SmartHost = &route.SmartHost{Host: "relay.test", Port: 587, TLS: smtpclient.TLSRequired, Verify: true,
		Auth: &smtpclient.Auth{User: "u", Password: "p"}}
	for _, domain := range []string{"d.test", "unknown.test"} {
		p, err := r.Hosts(t.Context(), domain)
		if err != nil || hosts(p) != "relay.test=10.0.0.1:587" || p.Via != "relay" {
			t.Fatalf("got %q, %+v, %v", hosts(p), p, err)
		}
		if h := p.Hosts[0]; h.TLS != smtpclient.TLSRequired || !h.Verify || h.Auth.User != "u" {
			t.Errorf("got %+v", h)
		}
	}
	if zone.QueryCount("d.test") != 0 {
		t.Error("DNS was asked about the destination")
	}
	for host, want := range map[string]string{
		"localhost": "localhost=[::1]:587,127.0.0.1:587", "192.168.1.1": "192.168.1.1=192.168.1.1:587",
	} {
		r.SmartHost.Host = host
		if p, err := r.Hosts(t.Context(), "d.test"); err != nil || hosts(p) != want {
			t.Errorf("got %q, %v", hosts(p), err)
		}
	}
}

// Mail is never bounced because the relay's name is wrong.
func TestSmartHostUnknown(t *testing.T) {
	r, _ := router(t)
	r.SmartHost = &route.SmartHost{Host: "relay.test", Port: 25}
	_, err := r.Hosts(t.Context(), "d.test")
	var why *route.Error
	if !errors.As(err, &why) || why.Permanent || why.Enhanced != "4.4.3" {
		t.Errorf("got %v", err)
	}
}
