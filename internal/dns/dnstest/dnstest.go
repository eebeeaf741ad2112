// SPDX-License-Identifier: Apache-2.0

// Package dnstest runs a DNS server for tests, over loopback, that answers for
// any name and fails on demand.
package dnstest

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	wire "github.com/miekg/dns"

	"github.com/mailstead/mailstead/internal/dns"
)

var errServFail = errors.New("told to fail")

// Zone is what the server knows. Names are taken in any case, with or without
// a trailing dot. Changes hold from the next question on; a Resolver may still
// have older answers in its cache.
type Zone struct {
	t       testing.TB
	records *Records

	mu        sync.Mutex
	faults    map[string]error
	absent    map[string]bool
	authentic map[string]bool
	queries   map[string]int
}

// Start runs a server until the test ends, with records as full zone-file
// lines such as "demo.test. MX 10 mx.demo.test.", and returns its address:
// UDP and TCP on a free port of 127.0.0.1.
func Start(t testing.TB, records ...string) (string, *Zone) {
	t.Helper()
	return StartAt(t, "127.0.0.1:0", records...)
}

// StartAt is Start for a server at a given address, such as port 53 of one on
// loopback, for programs that know of no other port.
func StartAt(t testing.TB, listen string, records ...string) (string, *Zone) {
	t.Helper()
	z := &Zone{
		t: t, records: NewRecords(),
		faults: make(map[string]error), absent: make(map[string]bool), authentic: make(map[string]bool), queries: make(map[string]int),
	}
	z.Add(records...)
	s, err := dns.Listen(dns.ServerConfig{Addr: listen, Source: z.source, Origins: []string{"."}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("closing the DNS server: %v", err)
		}
	})
	return s.Addr(), z
}

// Config is one of a Resolver that asks the server at addr for all names, those
// under test and the reverse ones of private networks too. It remembers no failures, so
// that a test can heal what failed.
func Config(addr string) dns.Config {
	zones := map[string]string{"test": addr, "invalid": addr, "in-addr.arpa": addr, "ip6.arpa": addr}
	return dns.Config{Server: addr, Zones: zones, MaxFailureTTL: -1}
}

// Resolver returns a Resolver of that Config, which takes the server's AD bit for
// true.
func Resolver(t testing.TB, addr string) *dns.Resolver {
	t.Helper()
	c := Config(addr)
	c.TrustAD, c.Timeout = true, 3*time.Second
	r, err := dns.New(c)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// Set puts records in place of all that name had; without any it removes them.
// A line is what follows the name: "MX 10 mx.demo.test.".
func (z *Zone) Set(name string, lines ...string) {
	z.t.Helper()
	if err := z.records.Set(name, lines...); err != nil {
		z.t.Fatal(err)
	}
}

// Add adds records given in full lines.
func (z *Zone) Add(lines ...string) {
	z.t.Helper()
	if err := z.records.Add(lines...); err != nil {
		z.t.Fatal(err)
	}
}

// Publish adds a record as the service asks for it: a value without quotes or
// final dots, and the priority that MX and SRV have.
func (z *Zone) Publish(kind, name, value string, priority *int) {
	z.t.Helper()
	switch {
	case kind == "TXT":
		var parts []string
		for rest := value; rest != ""; {
			n := min(len(rest), 255)
			parts = append(parts, strconv.Quote(rest[:n]))
			rest = rest[n:]
		}
		value = strings.Join(parts, " ")
	case priority != nil:
		value = fmt.Sprintf("%d %s.", *priority, value)
	default:
		value += "."
	}
	z.Add(name + ". " + kind + " " + value)
}

// ServFail answers questions about a name with SERVFAIL.
func (z *Zone) ServFail(name string) { z.setFault(name, errServFail) }

// Drop leaves questions about a name unanswered. The asker waits until its
// timeout, or its context, ends: give it a short one.
func (z *Zone) Drop(name string) { z.setFault(name, dns.ErrDrop) }

// NXDomain denies a name, whatever records it and those below it have.
func (z *Zone) NXDomain(name string) {
	z.mu.Lock()
	defer z.mu.Unlock()
	z.absent[zoneKey(name)] = true
}

// ClearFaults undoes ServFail, Drop and NXDomain for a name.
func (z *Zone) ClearFaults(name string) {
	z.mu.Lock()
	defer z.mu.Unlock()
	delete(z.faults, zoneKey(name))
	delete(z.absent, zoneKey(name))
}

// SetAuthentic makes answers about a name carry the AD bit.
func (z *Zone) SetAuthentic(name string) {
	z.mu.Lock()
	defer z.mu.Unlock()
	z.authentic[zoneKey(name)] = true
}

// QueryCount tells how many questions about a name, of any type, have come in, be
// it as the target of a CNAME.
func (z *Zone) QueryCount(name string) int {
	z.mu.Lock()
	defer z.mu.Unlock()
	return z.queries[zoneKey(name)]
}

// TotalQueries tells how many questions have come in.
func (z *Zone) TotalQueries() (n int) {
	z.mu.Lock()
	defer z.mu.Unlock()
	for _, times := range z.queries {
		n += times
	}
	return n
}

func (z *Zone) setFault(name string, err error) {
	z.mu.Lock()
	defer z.mu.Unlock()
	z.faults[zoneKey(name)] = err
}

func (z *Zone) source(ctx context.Context, name string) (dns.NameData, error) {
	z.mu.Lock()
	z.queries[name]++
	err, absent, authentic := z.faults[name], z.absent[name], z.authentic[name]
	z.mu.Unlock()
	if err != nil || absent {
		return dns.NameData{Authentic: authentic}, err
	}
	a, err := z.records.Source(ctx, name)
	a.Authentic = authentic
	return a, err
}

func zoneKey(name string) string { return strings.ToLower(wire.Fqdn(name)) }
