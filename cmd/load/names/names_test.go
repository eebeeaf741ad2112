// SPDX-License-Identifier: Apache-2.0

package names

import (
	"strings"
	"testing"

	"github.com/miekg/dns"
)

func TestAnswers(t *testing.T) {
	s, err := Listen()
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}()
	long := "v=DKIM1; p=" + strings.Repeat("A", 400) + `"\`
	for _, r := range [][3]string{{"A.bench-sink.net", "MX", "10 mx.bench-sink.net."}, {"mx.bench-sink.net", "A", "127.0.1.1"}, {"k.bench-sink.net", "TXT", long}} {
		if err := s.Add(r[0], r[1], r[2]); err != nil {
			t.Fatal(err)
		}
	}
	ask := func(network, name string, kind uint16) *dns.Msg {
		t.Helper()
		q := new(dns.Msg).SetQuestion(name, kind)
		a, _, err := (&dns.Client{Net: network}).Exchange(q, s.Addr)
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	if a := ask("udp", "a.BENCH-sink.net.", dns.TypeMX); len(a.Answer) != 1 || a.Answer[0].(*dns.MX).Mx != "mx.bench-sink.net." {
		t.Errorf("MX: %v", a)
	}
	if a := ask("tcp", "k.bench-sink.net.", dns.TypeTXT); len(a.Answer) != 1 || len(strings.Join(a.Answer[0].(*dns.TXT).Txt, "")) < 400 {
		t.Errorf("TXT: %v", a)
	}
	if a := ask("udp", "mx.bench-sink.net.", dns.TypeAAAA); a.Rcode != dns.RcodeSuccess || len(a.Answer) != 0 || len(a.Ns) != 1 {
		t.Errorf("no AAAA: %v", a)
	}
	if a := ask("udp", "other.net.", dns.TypeA); a.Rcode != dns.RcodeNameError || len(a.Ns) != 1 {
		t.Errorf("unknown name: %v", a)
	}
	if err := s.Add("x.net", "MX", "not a record"); err == nil {
		t.Error("a bad record was taken")
	}
}
