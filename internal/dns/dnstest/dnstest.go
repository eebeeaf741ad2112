// SPDX-License-Identifier: Apache-2.0

// Package dnstest has a DNS server for tests, on loopback, that answers for any name and fails on
// demand.
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

// Zone holds the server's data. It accepts names in any case, with or without a trailing dot.
// Changes apply from the next question on; a Resolver may still have older answers in its cache.
type Zone struct {
	t       testing.TB
	records *Records

	mu        sync.Mutex
	faults    map[string]error
	absent    map[string]bool
	authentic map[string]bool
	queries   map[string]int
}

// Start runs a server on a free port of 127.0.0.1 (UDP and TCP) until the test ends, and returns
// its address. Records are full zone-file lines such as "demo.test. MX 10 mx.demo.test.".
func Start(t testing.TB, records ...string) (string, *Zone) {
	t.Helper()
	return StartAt(t, "127.0.0.1:0", records...)
}

// StartAt is Start for a given address, such as port 53 on loopback, for programs that support no
// other port.
func StartAt(t testing.TB, listen string, records ...string) (string, *Zone) {
	t.Helper()
	z := &Zone{
		t: t, records: NewRecords(),
		faults: make(map[string]error), absent: make(map[string]bool), authentic: make(map[string]bool), queries: make(map[string]int),
	}
	z.Add(records...)
	return ServeSource(t, dns.ServerConfig{Addr: listen, Origins: []string{"."}}, z.source).Addr(), z
}

// ServeSource starts a server, by default on a free port, which the end of the test closes.
func ServeSource(t testing.TB, c dns.ServerConfig, source dns.Source) *dns.Server {
	t.Helper()
	if c.Addr == "" {
		c.Addr = "127.0.0.1:0"
	}
	s, err := dns.Listen(c)
	if err != nil {
		t.Fatal(err)
	}
	s.Serve(source)
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("closing the DNS server: %v", err)
		}
	})
	return s
}

// Config returns a configuration that asks the server at addr for all names, including those under
// test and the reverse names of private networks. It remembers no failures, so that a test can
// repair what failed.
func Config(addr string) dns.Config {
	zones := map[string]string{"test": addr, "invalid": addr, "in-addr.arpa": addr, "ip6.arpa": addr}
	return dns.Config{Server: addr, Zones: zones, MaxFailureTTL: -1}
}

// Resolver returns a Resolver with that Config, which trusts the server's AD bit.
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

// Set replaces all records of a name; without lines it removes them. A line is the part after the
// name: "MX 10 mx.demo.test.".
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

// Publish adds a record in the form that the service asks users for: a value without quotes and
// final dots, and the priority of MX and SRV.
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

// ServFail makes questions about a name fail with SERVFAIL.
func (z *Zone) ServFail(name string) { z.setFault(name, errServFail) }

// Drop leaves questions about a name unanswered. The client waits until its timeout or its context
// ends: use a short one.
func (z *Zone) Drop(name string) { z.setFault(name, dns.ErrDrop) }

// NXDomain makes a name not exist, even if it or names below it have records.
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

// QueryCount returns how many questions about a name, of any type, have been received, including
// those for the target of a CNAME.
func (z *Zone) QueryCount(name string) int {
	z.mu.Lock()
	defer z.mu.Unlock()
	return z.queries[zoneKey(name)]
}

// TotalQueries returns how many questions have been received.
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
