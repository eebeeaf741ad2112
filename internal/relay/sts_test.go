// SPDX-License-Identifier: Apache-2.0

package relay_test

import (
	"crypto/sha256"
	"crypto/tls"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"

	"github.com/mailstead/mailstead/internal/cert/certtest"
	"github.com/mailstead/mailstead/internal/queue"
	"github.com/mailstead/mailstead/internal/route"
)

// stsCase is a domain with a policy and mail hosts.
type stsCase struct {
	name   string
	policy string   // its mode, and the hosts that it names
	hosts  []string // by preference: a name below the domain and an address
	tlsa   string   // of the first host, in signed DNS
	want   string
	stage  string
	tls    string
	reply  string
	story  string // part of the transcript
}

// hosts that are there: with a good certificate for every name of the test,
// with one for nobody, without TLS.
const (
	goodHost, badHost, clearHost, refusingHost = "127.0.0.1", "127.0.0.2", "127.0.0.3", "127.0.0.4"
)

func stsCases(key string) []stsCase {
	const full = "delivered 2.0.0"
	return []stsCase{
		{name: "good", policy: "enforce mx.good.test", hosts: []string{"mx " + goodHost}, want: full, stage: "final",
			tls: ", verified: PKIX", story: "* TLS is required: MTA-STS policy of good.test"},
		{name: "wildcard", policy: "enforce *.wildcard.test", hosts: []string{"mx " + goodHost}, want: full, stage: "final", tls: "verified"},
		{name: "bad-cert", policy: "enforce mx.bad-cert.test", hosts: []string{"mx " + badHost}, want: "deferred 4.7.5", stage: "handshake",
			reply: "MTA-STS policy of bad-cert.test: TLS handshake: tls: failed to verify certificate"},
		{name: "no-tls", policy: "enforce mx.no-tls.test", hosts: []string{"mx " + clearHost}, want: "deferred 4.7.4", stage: "starttls",
			reply: "MTA-STS policy of no-tls.test: TLS is required, and the host does not offer STARTTLS"},
		{name: "no-start", policy: "enforce mx.no-start.test", hosts: []string{"mx " + refusingHost}, want: "deferred 4.7.0", stage: "starttls",
			reply: "TLS not available"},
		{name: "trial-start", policy: "testing mx.trial-start.test", hosts: []string{"mx " + refusingHost}, want: full, stage: "final",
			story: "454 4.7.0 TLS not available"},
		{name: "unnamed", policy: "enforce other.unnamed.test", hosts: []string{"mx " + goodHost}, want: "deferred 4.7.0", stage: "policy",
			reply: "MTA-STS policy of unnamed.test: it does not name the host mx.unnamed.test", story: "does not name the host mx.unnamed.test"},
		{name: "second", policy: "enforce *.second.test", hosts: []string{"a " + badHost, "b " + goodHost}, want: full, stage: "final",
			tls: "verified: PKIX", story: "MTA-STS policy of second.test: TLS handshake"},
		{name: "third", policy: "enforce c.third.test", hosts: []string{"a " + goodHost, "b " + goodHost, "c " + goodHost}, want: full,
			stage: "final", tls: "verified: PKIX", story: "MTA-STS policy of third.test: it does not name the host b.third.test"},
		{name: "trial", policy: "testing mx.trial.test", hosts: []string{"mx " + goodHost}, want: full, stage: "final", tls: "TLS 1.3",
			story: "MTA-STS policy of trial.test (testing): the certificate is good"},
		{name: "trial-bad", policy: "testing mx.trial-bad.test", hosts: []string{"mx " + badHost}, want: full, stage: "final", tls: "TLS 1.3",
			story: "MTA-STS policy of trial-bad.test (testing): x509"},
		{name: "trial-clear", policy: "testing mx.trial-clear.test", hosts: []string{"mx " + clearHost}, want: full, stage: "final",
			story: "MTA-STS policy of trial-clear.test (testing): the host does not offer STARTTLS"},
		{name: "trial-unnamed", policy: "testing other.test", hosts: []string{"mx " + goodHost}, want: full, stage: "final",
			story: "MTA-STS policy of trial-unnamed.test (testing): it does not name the host mx.trial-unnamed.test"},
		{name: "none", policy: "none ", hosts: []string{"mx " + clearHost}, want: full, stage: "final"},
		{name: "failing-dane", policy: "enforce mx.failing-dane.test", hosts: []string{"mx " + goodHost}, tlsa: "3 1 1 " + strings.Repeat("00", 32),
			want: "deferred 4.7.5", stage: "handshake", reply: "DANE: TLS handshake: no TLSA record matches"},
		{name: "good-dane", policy: "enforce other.test", hosts: []string{"mx " + goodHost}, tlsa: "3 1 1 " + key, want: full, stage: "final",
			tls: "verified: DANE"},
		{name: "useless-dane", policy: "enforce mx.useless-dane.test", hosts: []string{"mx " + badHost}, tlsa: "1 1 1 " + key,
			want: "deferred 4.7.5", stage: "handshake", reply: "MTA-STS policy of useless-dane.test"},
	}
}

// servePolicies serves each domain's policy, and returns the port.
func servePolicies(t *testing.T, config *tls.Config, cases []stsCase) uint16 {
	t.Helper()
	policies := map[string]string{}
	for _, c := range cases {
		mode, named, _ := strings.Cut(c.policy, " ")
		text := "version: STSv1\nmode: " + mode + "\nmax_age: 86400\n"
		if named != "" {
			text += "mx: " + named + "\n"
		}
		policies["mta-sts."+c.name+".test"] = text
	}
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		host, _, _ := net.SplitHostPort(r.Host)
		w.Header().Set("Content-Type", "text/plain")
		_, _ = io.WriteString(w, policies[host])
	}))
	srv.TLS = config
	srv.StartTLS()
	t.Cleanup(srv.Close)
	return srv.Listener.Addr().(*net.TCPAddr).AddrPort().Port()
}

// MTA-STS policies applied to mail hosts, with and without DANE.
func TestMTASTS(t *testing.T) {
	ca := certtest.New(t, "root")
	var names []string
	for _, c := range stsCases("") {
		names = append(names, "mta-sts."+c.name+".test")
		for _, h := range c.hosts {
			host, _, _ := strings.Cut(h, " ")
			names = append(names, host+"."+c.name+".test")
		}
	}
	good := ca.ServerConfig(names...)
	cases := stsCases(fmt.Sprintf("%x", sha256.Sum256(good.Certificates[0].Leaf.RawSubjectPublicKeyInfo)))
	policyPort := servePolicies(t, good.Clone(), cases)
	l := bind(t, goodHost, badHost, clearHost, refusingHost)
	var port uint16
	for i, c := range []*tls.Config{good, certificate(t, "nobody.test"), nil} {
		port = start(t, l[i], &sink{tls: c}).addr.Port()
	}
	start(t, l[3], &sink{tls: good, answer: refuse("STARTTLS", "454 4.7.0 TLS not available")})
	h := newFixture(t, port, nil)
	for _, c := range cases {
		domain := c.name + ".test"
		h.zone.Add("mta-sts."+domain+". A 127.0.0.1", "_mta-sts."+domain+`. TXT "v=STSv1; id=1;"`)
		for i, s := range c.hosts {
			host, addr, _ := strings.Cut(s, " ")
			h.zone.Add(fmt.Sprintf("%s. MX %d %s.%s.", domain, i, host, domain), fmt.Sprintf("%s.%s. A %s", host, domain, addr))
		}
		if c.tlsa != "" {
			pinned := fmt.Sprintf("_%d._tcp.mx.%s", port, domain)
			h.zone.Add(pinned + ". TLSA " + c.tlsa)
			for _, name := range []string{domain, "mx." + domain, pinned} {
				h.zone.SetAuthentic(name)
			}
		}
	}
	h.router.Roots = ca.Pool()
	h.router.STS = route.NewSTSResolver(route.STSOptions{
		DB: h.db, DNS: h.router.DNS, Roots: ca.Pool(), AllowNets: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")},
		Port: policyPort, Now: h.clock, Log: slog.New(slog.DiscardHandler),
	})
	h.run()
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			a := h.attempt(h.send("bob@" + c.name + ".test"))
			if got := strings.TrimSpace(string(a.Outcome) + " " + a.Enhanced); got != c.want || a.Stage != c.stage ||
				!strings.Contains(a.TLS, c.tls) || !strings.Contains(a.Reply, c.reply) || !strings.Contains(a.Transcript, c.story) ||
				strings.Contains(a.TLS, "verified") != strings.Contains(c.tls, "verified") {
				t.Errorf("got %s at %s, TLS %q, reply %q\n%s", got, a.Stage, a.TLS, a.Reply, a.Transcript)
			}
			if a.Outcome == queue.Deferred && (a.Code != 0) != (c.stage == "policy" || c.name == "no-start") {
				t.Errorf("code %d", a.Code)
			}
		})
	}
}
