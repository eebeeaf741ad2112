// SPDX-License-Identifier: Apache-2.0

package mailauth

import (
	"context"
	"strings"

	"github.com/mailstead/mailstead/internal/dns"
)

// SPFIncludes is the result of evaluating everything that an SPF record refers to.
type SPFIncludes struct {
	Result Result // Pass if receivers can evaluate it, else TempError or PermError
	Reason string // why they can't
	// InInclude reports whether the problem is in the required include, and not in the record that
	// includes it.
	InInclude bool
	// AfterInclude reports whether the problem comes after the required include, so that mail from
	// its hosts still passes.
	AfterInclude bool
}

// CheckSPFIncludes evaluates the SPF record among the TXT records of a domain as receivers do, for
// a client whose address matches nothing. It follows all terms except those that depend on the
// client, within the limits of VerifySPF. ctx limits its time. include is the required include.
func CheckSPFIncludes(ctx context.Context, r *dns.Resolver, domain string, txts []string, include string) SPFIncludes {
	s := &spfEvaluation{dns: r, localPart: "postmaster", senderDomain: domain, requiredInclude: strings.ToLower(include)}
	switch result, _ := s.evaluate(ctx, domain, txts); result {
	case TempError, PermError:
		return SPFIncludes{Result: result, Reason: s.reason, InInclude: s.inInclude, AfterInclude: s.afterInclude}
	}
	return SPFIncludes{Result: Pass}
}

// isClientUnknown reports whether the client's address is unknown and matches nothing.
func (s *spfEvaluation) isClientUnknown() bool { return !s.ip.IsValid() }

// dependsOnClient reports whether a domain-spec has a macro. Most macros are about the client.
func dependsOnClient(spec string) bool { return strings.Contains(spec, "%") }

// trackRequiredInclude records the position of the evaluation relative to the required include.
func (s *spfEvaluation) trackRequiredInclude(target string, r Result) {
	if s.requiredInclude == "" || target != s.requiredInclude || s.afterInclude {
		return
	}
	switch r {
	case None:
		s.inInclude = true
	case TempError, PermError:
		s.inInclude = s.dnsTerms <= maxSPFLookups
	default:
		s.afterInclude = true
	}
}
