// SPDX-License-Identifier: Apache-2.0

package mailauth_test

import (
	"bytes"
	"errors"
	"io"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"

	wire "github.com/miekg/dns"
	"gopkg.in/yaml.v3"

	"github.com/mailstead/mailstead/internal/dns/dnstest"
	"github.com/mailstead/mailstead/internal/mailauth"
)

// suite is a part of the openspf.org test suite: tests and their DNS zone.
type suite struct {
	Description string
	Tests       map[string]struct {
		Helo, Host, Mailfrom string
		Result               yaml.Node
		Explanation          string
	}
	Zonedata map[string][]map[string]yaml.Node
}

// texts reads one string, or a list of them.
func texts(t *testing.T, n *yaml.Node) (list []string) {
	t.Helper()
	var one string
	if n.Decode(&one) == nil {
		return []string{one}
	}
	if err := n.Decode(&list); err != nil {
		t.Fatal(err)
	}
	return list
}

// records returns the DNS records of a name in the zone. dead reports whether other queries for it
// time out.
func records(t *testing.T, name string, data []map[string]yaml.Node) (rrs []wire.RR, dead bool) {
	t.Helper()
	hdr := func(kind uint16) wire.RR_Header {
		return wire.RR_Header{Name: name, Rrtype: kind, Class: wire.ClassINET, Ttl: 60}
	}
	text := func(parts []string) wire.RR {
		var txt []string
		for _, p := range parts {
			for ; len(p) > 255; p = p[255:] {
				txt = append(txt, p[:255])
			}
			txt = append(txt, p)
		}
		for i := range txt {
			txt[i] = strings.ReplaceAll(txt[i], `\`, `\\`)
		}
		return &wire.TXT{Hdr: hdr(wire.TypeTXT), Txt: txt}
	}
	own := slices.ContainsFunc(data, func(m map[string]yaml.Node) bool { _, ok := m["TXT"]; return ok })
	for _, m := range data {
		for kind, n := range m {
			switch kind {
			case "TXT":
				if list := texts(t, &n); list[0] != "NONE" {
					rrs = append(rrs, text(list))
				}
			case "SPF": // also stands for TXT if there is none (see the head of the suite)
				if !own {
					rrs = append(rrs, text(texts(t, &n)))
				}
			case "A", "AAAA":
				for _, a := range texts(t, &n) {
					addr := netip.MustParseAddr(a)
					if kind == "A" {
						rrs = append(rrs, &wire.A{Hdr: hdr(wire.TypeA), A: addr.AsSlice()})
					} else {
						rrs = append(rrs, &wire.AAAA{Hdr: hdr(wire.TypeAAAA), AAAA: addr.AsSlice()})
					}
				}
			case "MX":
				var mx []any
				if err := n.Decode(&mx); err != nil {
					t.Fatal(err)
				}
				rrs = append(rrs, &wire.MX{Hdr: hdr(wire.TypeMX), Preference: uint16(mx[0].(int)), Mx: wire.Fqdn(mx[1].(string))})
			case "PTR":
				for _, p := range texts(t, &n) {
					rrs = append(rrs, &wire.PTR{Hdr: hdr(wire.TypePTR), Ptr: wire.Fqdn(p)})
				}
			case "CNAME":
				rrs = append(rrs, &wire.CNAME{Hdr: hdr(wire.TypeCNAME), Target: wire.Fqdn(texts(t, &n)[0])})
			case "TIMEOUT", "CNAMELOOP":
				dead = true
			default:
				t.Fatalf("%s has %s", name, kind)
			}
		}
	}
	return rrs, dead
}

// serve serves the suite's zone and returns the DNS server's address.
func (s *suite) serve(t *testing.T) string {
	zone, dead := map[string][]wire.RR{}, map[string]bool{}
	for name, data := range s.Zonedata {
		name = wire.CanonicalName(strings.ReplaceAll(name, " ", `\ `))
		zone[name], dead[name] = records(t, name, data)
	}
	return dnstest.Serve(t, func(m *wire.Msg, q wire.Question) {
		name := wire.CanonicalName(q.Name)
		for {
			next := ""
			for _, rr := range zone[name] {
				if rr.Header().Rrtype == q.Qtype {
					m.Answer = append(m.Answer, rr)
				} else if c, ok := rr.(*wire.CNAME); ok {
					next = c.Target
					m.Answer = append(m.Answer, rr)
				}
			}
			if next == "" {
				break
			}
			name = wire.CanonicalName(next)
		}
		switch {
		case len(m.Answer) > 0:
		case dead[name]:
			m.Rcode = wire.RcodeServerFailure
		case zone[name] == nil:
			m.Rcode = wire.RcodeNameError
		}
	})
}

// The published test suite for RFC 7208, all of it: results and explanations.
func TestSPFSuite(t *testing.T) {
	file, err := os.ReadFile("testdata/spf/rfc7208-tests.yml")
	if err != nil {
		t.Fatal(err)
	}
	total := 0
	for d := yaml.NewDecoder(bytes.NewReader(file)); ; {
		var s suite
		if err := d.Decode(&s); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		t.Run(s.Description, func(t *testing.T) {
			r := dnstest.Resolver(t, s.serve(t))
			for name, test := range s.Tests {
				total++
				got := mailauth.VerifySPF(t.Context(), r, mailauth.ClientIdentity{IP: netip.MustParseAddr(test.Host), Helo: test.Helo, From: test.Mailfrom})
				if want := texts(t, &test.Result); !slices.Contains(want, string(got.Result)) {
					t.Errorf("%s: %s (%s), want %v", name, got.Result, got.Reason, want)
					continue
				}
				if want := strings.TrimSuffix(test.Explanation, "DEFAULT"); test.Explanation != "" && got.Result == mailauth.Fail {
					if text := got.Explain(t.Context()); text != want {
						t.Errorf("%s is explained by %q, want %q", name, text, want)
					}
				}
			}
		})
	}
	if total < 200 {
		t.Errorf("only %d tests were found", total)
	}
}

// A term whose hosts have no IPv6 addresses counts once as void, regardless of the number of hosts:
// the limit is on terms (RFC 7208 §4.6.4).
func TestSPFOfHostsWithoutIPv6(t *testing.T) {
	addr, _ := dnstest.Start(t, `client.test. TXT "v=spf1 mx ip6:2001:db8::/32 -all"`, `four.test. TXT "v=spf1 a:x.test a:y.test mx:client.test ip6:2001:db8::/32 -all"`,
		"client.test. MX 10 mx.client.test.", "client.test. MX 20 mx2.client.test.", "client.test. MX 30 mx3.client.test.",
		"mx.client.test. A 192.0.2.1", "mx2.client.test. A 192.0.2.2", "mx3.client.test. A 192.0.2.3")
	r := dnstest.Resolver(t, addr)
	for from, want := range map[string]mailauth.Result{"a@client.test": mailauth.Pass, "a@four.test": mailauth.PermError} {
		got := mailauth.VerifySPF(t.Context(), r, mailauth.ClientIdentity{IP: netip.MustParseAddr("2001:db8::7"), From: from})
		if got.Result != want {
			t.Errorf("%s: %s (%s), want %s", from, got.Result, got.Reason, want)
		}
	}
}
