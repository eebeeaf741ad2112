// SPDX-License-Identifier: Apache-2.0

package dnstest

import (
	"context"
	"strings"
	"sync"

	wire "github.com/miekg/dns"

	"github.com/mailstead/mailstead/internal/dns"
)

// Records is a set of records in memory, for a dns.Server's Source. It is safe
// for concurrent use.
type Records struct {
	mu    sync.RWMutex
	names map[string][]wire.RR
}

// NewRecords returns an empty set.
func NewRecords() *Records { return &Records{names: make(map[string][]wire.RR)} }

// Source is a dns.Source for the set. A name also exists if one below it does.
func (r *Records) Source(_ context.Context, name string) (dns.NameData, error) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	if rrs := r.names[name]; len(rrs) > 0 {
		return dns.NameData{Records: rrs, Exists: true}, nil
	}
	for n := range r.names {
		if strings.HasSuffix(n, "."+name) {
			return dns.NameData{Exists: true}, nil
		}
	}
	return dns.NameData{}, nil
}

// Set replaces all records of a name; without lines it removes the name. A line is the part after
// the name in a zone file: "MX 10 mx.demo.test." or "300 IN TXT \"one\" \"two\"".
func (r *Records) Set(name string, lines ...string) error {
	fqdn := wire.CanonicalName(name)
	var rrs []wire.RR
	for _, line := range lines {
		parsed, err := dns.ParseRecords(fqdn + " " + line)
		if err != nil {
			return err
		}
		rrs = append(rrs, parsed...)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(rrs) == 0 {
		delete(r.names, fqdn)
	} else {
		r.names[fqdn] = rrs
	}
	return nil
}

// Add adds records, in full zone-file lines such as "demo.test. MX 10 mx.demo.test.".
func (r *Records) Add(lines ...string) error {
	rrs, err := dns.ParseRecords(lines...)
	if err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, rr := range rrs {
		name := wire.CanonicalName(rr.Header().Name)
		// Copy the slice: answers share the old one.
		r.names[name] = append(r.names[name][:len(r.names[name]):len(r.names[name])], rr)
	}
	return nil
}
