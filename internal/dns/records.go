// SPDX-License-Identifier: Apache-2.0

package dns

import (
	"fmt"
	"strings"

	wire "github.com/miekg/dns"
)

// defaultTTL is the TTL of lines that give none, in seconds.
const defaultTTL = 60

// ParseRecords parses full zone-file lines, one record each (RFC 1035 §5.1). Names without a
// trailing dot are complete too. It rejects directives. The default TTL is 60 s.
func ParseRecords(lines ...string) ([]wire.RR, error) {
	var rrs []wire.RR
	for i, line := range lines {
		if strings.HasPrefix(line, "$") || strings.ContainsAny(line, "\r\n") {
			return nil, fmt.Errorf("dns: line %d of the zone is not a single record", i+1)
		}
		p := wire.NewZoneParser(strings.NewReader(line+"\n"), ".", "")
		p.SetDefaultTTL(defaultTTL)
		rr, ok := p.Next()
		if err := p.Err(); err != nil {
			return nil, fmt.Errorf("dns: line %d of the zone: %w", i+1, err)
		}
		if !ok {
			return nil, fmt.Errorf("dns: line %d of the zone has no record", i+1)
		}
		if !validRecord(rr) {
			return nil, fmt.Errorf("dns: line %d of the zone lacks data or has too much", i+1)
		}
		rrs = append(rrs, rr)
	}
	return rrs, nil
}

// validRecord reports whether a record has its data and fits into a message. The parser accepts
// records without data, for dynamic updates.
func validRecord(rr wire.RR) bool {
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
