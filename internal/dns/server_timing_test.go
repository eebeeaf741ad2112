// SPDX-License-Identifier: Apache-2.0

package dns

import (
	"errors"
	"fmt"
	"testing"
	"time"

	wire "github.com/miekg/dns"
)

// The timeout of a question follows the server's measured times (RFC 6298).
func TestTiming(t *testing.T) {
	now := time.Unix(1e9, 0)
	var s serverTiming
	if w := s.timeout(); w != 400*time.Millisecond {
		t.Errorf("at first %v", w)
	}
	s.recordAnswer(200*time.Millisecond, now)
	if w := s.timeout(); w != 600*time.Millisecond { // SRTT = R, RTTVAR = R/2
		t.Errorf("after one answer %v", w)
	}
	s.recordAnswer(200*time.Millisecond, now)
	if w := s.timeout(); w != 500*time.Millisecond { // RTTVAR = 3/4 of it
		t.Errorf("after two %v", w)
	}
	for range 100 {
		s.recordAnswer(time.Millisecond, now)
	}
	if w := s.timeout(); w != minTimeout {
		t.Errorf("of a quick server %v", w)
	}
	s.recordAnswer(time.Minute, now)
	if w := s.timeout(); w != maxMeasuredTimeout {
		t.Errorf("after one slow domain %v", w)
	}
	for range 25 {
		s.recordAnswer(time.Millisecond, now)
	}
	if w := s.timeout(); w > 300*time.Millisecond {
		t.Errorf("after one slow domain and 25 quick ones %v", w)
	}
	for range 100 {
		s.recordAnswer(time.Minute, now)
	}
	if w := s.timeout(); w != maxMeasuredTimeout {
		t.Errorf("of a slow server %v", w)
	}
}

// An unresponsive server is asked after the others, except for occasional probes.
func TestSilentServerIsLast(t *testing.T) {
	now := time.Unix(1e9, 0)
	r, err := New(Config{Server: "192.0.2.1:53", Now: func() time.Time { return now }})
	if err != nil {
		t.Fatal(err)
	}
	other, err := newUpstream("192.0.2.2:53", false)
	if err != nil {
		t.Fatal(err)
	}
	r.upstreams = append(r.upstreams, other)
	first := func() string { return r.serversFor("a.example.com.")[0].addr }
	expect := func(what, want string) {
		t.Helper()
		if got := first(); got != want {
			t.Errorf("%s: %s is asked first", what, got)
		}
	}
	expect("at the start", "192.0.2.1:53")
	r.upstreams[0].timing.recordLoss(now)
	expect("one lost", "192.0.2.1:53")
	r.upstreams[0].timing.recordLoss(now)
	expect("two lost", "192.0.2.2:53")
	now = now.Add(probeInterval)
	expect("after a while one tries", "192.0.2.1:53")
	expect("and no more", "192.0.2.2:53")
	r.upstreams[0].timing.recordAnswer(time.Millisecond, now)
	expect("it answers", "192.0.2.1:53")
}

func TestFailures(t *testing.T) {
	now := time.Unix(1e9, 0)
	f := newFailureCache(Config{}, 3)
	q := question{"shop.example.com.", wire.TypeTXT}
	rests := func(want time.Duration) {
		t.Helper()
		if f.get(q, now.Add(want-1)) == nil || f.get(q, now.Add(want)) != nil {
			t.Errorf("it does not rest for %v", want)
		}
	}
	f.recordAnswer(question{"example.com.", wire.TypeMX}, now)
	for _, want := range []time.Duration{5, 10, 20, 40, 80, 160, 300, 300} {
		f.record(q, fmt.Errorf("x: %w", errNoAnswer), true, now)
		rests(want * time.Second)
		now = now.Add(want * time.Second)
	}
	f.record(q, errNoAnswer, false, now) // no server answered: ours may be down
	rests(5 * time.Second)
	for name, kept := range map[string]bool{"_dmarc.shop.example.com.": true, "example.com.": false, "eshop.example.com.": false} {
		if (f.get(question{name, wire.TypeTXT}, now) != nil) != kept {
			t.Errorf("%s: want %v", name, kept)
		}
	}
	if f.get(question{q.name, wire.TypeA}, now) != nil {
		t.Error("another type is taken for silent, too")
	}
	f.recordAnswer(q, now)
	if f.get(q, now) != nil {
		t.Error("it was answered, and is remembered as failed")
	}
	// A server failure says nothing about the names below. An error of the local network says
	// nothing at all.
	for _, err := range []error{rcodeError(wire.RcodeServerFailure), errIncompleteAnswer} {
		f.record(q, err, true, now)
		if f.get(q, now) == nil || f.get(question{"a." + q.name, q.qtype}, now) != nil {
			t.Errorf("%v is not remembered for its question alone", err)
		}
		f.recordAnswer(q, now)
	}
	f.record(q, errors.New("network is unreachable"), true, now)
	if f.get(q, now) != nil || f.entries.Len() != 1 { // only the entry that the domain has answered
		t.Error("an error of the network is remembered")
	}
	for i := range 10 {
		f.record(question{fmt.Sprintf("%d.test.", i), wire.TypeA}, errNoAnswer, true, now)
	}
	if f.entries.Len() != 3 || f.get(question{"9.test.", wire.TypeA}, now) == nil {
		t.Errorf("%d failures are kept", f.entries.Len())
	}
	none := newFailureCache(Config{MaxFailureTTL: -1}, 3)
	none.record(q, errNoAnswer, true, now)
	if none.get(q, now) != nil {
		t.Error("remembered though nothing is to be")
	}
}

func TestDomainOf(t *testing.T) {
	for name, want := range map[string]string{
		"a.b.example.com.": "example.com", "example.co.uk.": "example.co.uk", "x.example.co.uk.": "example.co.uk", "com.": "com",
		"4.3.2.1.in-addr.arpa.": "2.1.in-addr.arpa", "1.in-addr.arpa.": "1.in-addr.arpa",
		"1.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.6.8.4.1.0.0.2.ip6.arpa.": "0.6.8.4.1.0.0.2.ip6.arpa",
	} {
		if got := domainOf(name); got != want {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
	}
}
