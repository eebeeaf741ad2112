// SPDX-License-Identifier: Apache-2.0

package dns

import (
	"errors"
	"strings"
	"time"

	wire "github.com/miekg/dns"
)

// maxRecords bounds the records of one answer that we examine and keep.
const maxRecords = 1000

var (
	errCNAMEChain     = errors.New("the chain of CNAMEs is too long")
	errNotCached      = errors.New("it is not in the cache")
	errTooManyRecords = errors.New("more than 1000 records")
)

// rcodeError is the response code of a server that refused or failed to answer.
type rcodeError int

func (e rcodeError) Error() string {
	if s, ok := wire.RcodeToString[int(e)]; ok {
		return "the server says " + s
	}
	return "the server says an unknown code"
}

// question is a DNS question: a canonical name and a type, in class IN.
type question struct {
	name  string
	qtype uint16
}

// answer is a server's answer to a question. If it has neither records nor a reason, the CNAME
// chain leads to canonical, which is the next name to ask for.
type answer struct {
	records   []wire.RR
	canonical string
	reason    error // nil, ErrNotFound or ErrNoData
	authentic bool
	expires   time.Time
	size      int // size of the message, in octets
}

// isReplyTo reports whether m answers q as sent with this id.
func isReplyTo(m *wire.Msg, id uint16, q question) bool {
	if m.Id != id || !m.Response || m.Opcode != wire.OpcodeQuery {
		return false
	}
	if len(m.Question) == 0 {
		// A server that could not parse the question can't repeat it.
		return m.Rcode == wire.RcodeFormatError || m.Rcode == wire.RcodeNotImplemented
	}
	got := m.Question[0]
	return len(m.Question) == 1 && got.Qtype == q.qtype && got.Qclass == wire.ClassINET &&
		strings.EqualFold(got.Name, q.name)
}

// parseAnswer extracts the answer to the question from a message: the CNAME chain from its name and
// the records at the end. It ignores all other records in the message. The TTL is the shortest in
// the chain.
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
			if h.Rdlength == 0 { // no type that we use may be empty
				if h.Rrtype != wire.TypeTXT {
					return answer{}, 0, errMalformed
				}
				empty = true // some domains publish an empty record besides another
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

// soaNegativeTTL returns how long a negative answer may be cached (RFC 2308 §5): one second without
// an SOA, so that a flood of the same question does not reach the server.
func soaNegativeTTL(m *wire.Msg) (uint32, bool) {
	for _, rr := range m.Ns {
		if soa, ok := rr.(*wire.SOA); ok {
			return min(soa.Hdr.Ttl, soa.Minttl), true
		}
	}
	return 1, false
}

// ttlDuration converts a TTL. One with the top bit set counts as 0 (RFC 2181 §8).
func ttlDuration(ttl uint32) time.Duration {
	if ttl > 1<<31-1 {
		return 0
	}
	return time.Duration(ttl) * time.Second
}
