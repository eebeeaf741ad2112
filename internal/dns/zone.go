// SPDX-License-Identifier: Apache-2.0

package dns

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"

	wire "github.com/miekg/dns"
)

// zoneTTL is for lines that give none, in seconds.
const zoneTTL = 60

// Zone is a set of records in memory, for a Server's Source. It is safe for
// concurrent use.
type Zone struct {
	mu    sync.RWMutex
	names map[string][]wire.RR
}

// NewZone returns an empty Zone.
func NewZone() *Zone { return &Zone{names: make(map[string][]wire.RR)} }

// Source answers from the zone. A name exists also if one below it does.
func (z *Zone) Source(_ context.Context, name string) (Answer, error) {
	z.mu.RLock()
	defer z.mu.RUnlock()
	if rrs := z.names[name]; len(rrs) > 0 {
		return Answer{Records: rrs, Exists: true}, nil
	}
	for n := range z.names {
		if strings.HasSuffix(n, "."+name) {
			return Answer{Exists: true}, nil
		}
	}
	return Answer{}, nil
}

// Set puts records in place of all that name had; without any it removes the
// name. A line is what follows the name in a zone file: "MX 10 mx.demo.test."
// or "300 IN TXT \"one\" \"two\"".
func (z *Zone) Set(name string, lines ...string) error {
	fqdn, ok := canonical(name)
	if !ok {
		return errors.New("dns: not a domain name")
	}
	var rrs []wire.RR
	for _, line := range lines {
		parsed, err := ParseRecords(fqdn + " " + line)
		if err != nil {
			return err
		}
		rrs = append(rrs, parsed...)
	}
	z.mu.Lock()
	defer z.mu.Unlock()
	if len(rrs) == 0 {
		delete(z.names, fqdn)
	} else {
		z.names[fqdn] = rrs
	}
	return nil
}

// Add adds records, given in full zone-file lines such as
// "demo.test. MX 10 mx.demo.test.", to those that are there.
func (z *Zone) Add(lines ...string) error {
	rrs, err := ParseRecords(lines...)
	if err != nil {
		return err
	}
	z.mu.Lock()
	defer z.mu.Unlock()
	for _, rr := range rrs {
		name := wire.CanonicalName(rr.Header().Name)
		// A full copy: answers share the old one.
		z.names[name] = append(z.names[name][:len(z.names[name]):len(z.names[name])], rr)
	}
	return nil
}

// ParseRecords reads full zone-file lines, one record each (RFC 1035 §5.1).
// Names without a trailing dot are complete too. Directives are refused. The
// TTL is 60 s where none is given.
func ParseRecords(lines ...string) ([]wire.RR, error) {
	var rrs []wire.RR
	for i, line := range lines {
		if strings.HasPrefix(line, "$") || strings.ContainsAny(line, "\r\n") {
			return nil, fmt.Errorf("dns: line %d of the zone is not a single record", i+1)
		}
		p := wire.NewZoneParser(strings.NewReader(line+"\n"), ".", "")
		p.SetDefaultTTL(zoneTTL)
		rr, ok := p.Next()
		if err := p.Err(); err != nil {
			return nil, fmt.Errorf("dns: line %d of the zone: %w", i+1, err)
		}
		if !ok {
			return nil, fmt.Errorf("dns: line %d of the zone has no record", i+1)
		}
		if !sound(rr) {
			return nil, fmt.Errorf("dns: line %d of the zone lacks data or has too much", i+1)
		}
		rrs = append(rrs, rr)
	}
	return rrs, nil
}

// sound reports whether a record has its data and fits a message: the parser
// lets records without data pass, for dynamic updates.
func sound(rr wire.RR) bool {
	text := rr.String()
	if strings.TrimSpace(strings.TrimPrefix(text, rr.Header().String())) == "" {
		return false
	}
	if _, err := wire.NewRR(text); err != nil {
		return false
	}
	_, err := wire.PackRR(rr, make([]byte, min(wire.Len(rr), wire.MaxMsgSize)), 0, nil, false)
	return err == nil
}
