// SPDX-License-Identifier: Apache-2.0

package mailauth

import (
	"context"
	"strings"

	"github.com/mailstead/mailstead/internal/dns"
)

// Includes is how receivers fare with all that an SPF record refers to.
type Includes struct {
	Result Result // Pass: they can evaluate it; else TempError or PermError
	Reason string // why they can't
	// Inside: the trouble is in the name that has to be included, and not in the
	// record that includes it.
	Inside bool
	// After: the trouble comes behind that name, so that mail from its hosts
	// passes nevertheless.
	After bool
}

// CheckIncludes evaluates the SPF record among the TXT records of a domain as
// receivers do, for a client whose address matches nothing. It follows all
// terms but those that depend on the client, in the limits of JudgeSPF; ctx
// bounds its time. include is the name that the record has to include.
func CheckIncludes(ctx context.Context, r *dns.Resolver, domain string, txts []string, include string) Includes {
	s := &spfCheck{dns: r, local: "postmaster", origin: domain, include: strings.ToLower(include)}
	switch result, _ := s.evaluate(ctx, domain, txts); result {
	case TempError, PermError:
		return Includes{Result: result, Reason: s.reason, Inside: s.inside, After: s.after}
	}
	return Includes{Result: Pass}
}

// anyone reports whether the client's address is not known, and matches nothing.
func (s *spfCheck) anyone() bool { return !s.ip.IsValid() }

// dependsOnClient reports whether a domain-spec has a macro, most of which are
// about the client.
func dependsOnClient(spec string) bool { return strings.Contains(spec, "%") }

// note keeps where the evaluation stands to the name that has to be included.
func (s *spfCheck) note(target string, r Result) {
	if s.include == "" || target != s.include || s.after {
		return
	}
	switch r {
	case None:
		s.inside = true
	case TempError, PermError:
		s.inside = s.terms <= maxSPFLookups
	default:
		s.after = true
	}
}
