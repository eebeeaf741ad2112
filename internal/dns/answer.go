// SPDX-License-Identifier: Apache-2.0

package dns

import (
	"errors"
	"strings"
	"time"

	wire "github.com/miekg/dns"
)

// maxTXTRecords bounds what one answer makes us walk through and keep.
const maxRecords = 1000

var (
	errCNAMEChain     = errors.New("the chain of CNAMEs is too long")
	errNotCached      = errors.New("it is not in the cache")
	errTooManyRecords = errors.New("more than 1000 records")
)

// rcodeError is a server's refusal or failure to answer.
type rcodeError int

func (e rcodeError) Error() string {
	if s, ok := wire.RcodeToString[int(e)]; ok {
		return "the server says " + s
	}
	return "the server says an unknown code"
}

// question is what is asked: a canonical name and a type, in class IN.
type question struct {
	name  string
	qtype uint16
}

// answer is what a server said to a question. Without records and reason, the
// chain of CNAMEs leads to canonical, which is to be asked for next.
type answer struct {
	records   []wire.RR
	canonical string
	reason    error // nil, ErrNotFound or ErrNoData
	authentic bool
	expires   time.Time
	size      int // octets in the message
}

// isReplyTo reports whether m answers q as sent with this id.
func isReplyTo(m *wire.Msg, id uint16, q question) bool {
	if m.Id != id || !m.Response || m.Opcode != wire.OpcodeQuery {
		return false
	}
	if len(m.Question) == 0 {
		// A server that could not read the question has none to repeat.
		return m.Rcode == wire.RcodeFormatError || m.Rcode == wire.RcodeNotImplemented
	}
	got := m.Question[0]
	return len(m.Question) == 1 && got.Qtype == q.qtype && got.Qclass == wire.ClassINET &&
		strings.EqualFold(got.Name, q.name)
}

// parseAnswer takes from a message what answers the question: the chain of CNAMEs
// from its name on and the records at the end, nothing else that a server may
// have put there. The TTL is the shortest on the way.
func parseAnswer(m *wire.Msg, q question) (answer, time.Duration, error) {
	if m.Rcode != wire.RcodeSuccess && m.Rcode != wire.RcodeNameError {
		return answer{}, 0, rcodeError(m.Rcode)
	}
	if len(m.Answer) > maxRecords {
		return answer{}, 0, errTooManyRecords
	}
	a := answer{canonical: q.name, size: m.Len()}
	ttl := uint32(1<<31 - 1) // RFC 2181 §8
	for hops := 0; ; hops++ {
		if hops > maxChain {
			return answer{}, 0, errCNAMEChain
		}
		next, empty := "", false
		for _, rr := range m.Answer {
			h := rr.Header()
			if h.Class != wire.ClassINET || !strings.EqualFold(h.Name, a.canonical) {
				continue
			}
			if h.Rdlength == 0 { // no type that we read may be empty
				if h.Rrtype != wire.TypeTXT {
					return answer{}, 0, errMalformed
				}
				empty = true // some publish one beside another
				continue
			}
			if h.Rrtype == q.qtype {
				a.records = append(a.records, rr)
				ttl = min(ttl, h.Ttl)
			} else if c, ok := rr.(*wire.CNAME); ok && next == "" {
				next = strings.ToLower(c.Target)
				ttl = min(ttl, h.Ttl)
			}
		}
		if len(a.records) > 0 {
			return a, ttlDuration(ttl), nil
		}
		if empty {
			return answer{}, 0, errMalformed
		}
		if next == "" {
			break
		}
		a.canonical = next
	}
	soaTTL, hasSOA := soaNegativeTTL(m)
	switch {
	case m.Rcode == wire.RcodeNameError:
		a.reason = ErrNotFound
	case a.canonical == q.name || hasSOA:
		a.reason = ErrNoData
	default:
		return a, ttlDuration(ttl), nil
	}
	return a, ttlDuration(min(ttl, soaTTL)), nil
}

// soaNegativeTTL is how long the absence may be kept (RFC 2308 §5): without an SOA
// for a second, so that a flood of the same question is not passed on.
func soaNegativeTTL(m *wire.Msg) (uint32, bool) {
	for _, rr := range m.Ns {
		if soa, ok := rr.(*wire.SOA); ok {
			return min(soa.Hdr.Ttl, soa.Minttl), true
		}
	}
	return 1, false
}

// ttlDuration reads a TTL; one with the top bit set counts as 0 (RFC 2181 §8).
func ttlDuration(ttl uint32) time.Duration {
	if ttl > 1<<31-1 {
		return 0
	}
	return time.Duration(ttl) * time.Second
}
