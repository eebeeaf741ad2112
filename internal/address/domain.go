// SPDX-License-Identifier: Apache-2.0

package address

import (
	"net/netip"
	"strings"
	"unicode/utf8"

	"golang.org/x/net/idna"
	"golang.org/x/net/publicsuffix"
)

// idnaProfile is IDNA2008 without the transitional mappings of UTS 46, so that straße.example stays
// unchanged. Hyphens at positions three and four are allowed: names with them exist, and only xn--
// has a meaning.
var idnaProfile = idna.New(
	idna.MapForLookup(),
	idna.Transitional(false),
	idna.BidiRule(),
	idna.CheckJoiners(true),
	idna.CheckHyphens(false),
	idna.StrictDomainName(true),
)

const (
	whyDomainEmpty  = "The domain is missing."
	whyDomainLong   = "The domain name is longer than 253 characters."
	whyDomainLabel  = "Each part of a domain name has 1 to 63 letters, digits and hyphens, with no hyphen at its ends."
	whyDomainSingle = "Give the full domain name, with at least one dot."
	whyDomainIP     = "An IP address is not a domain name."
	whyDomainIDN    = "The domain name holds characters that international domain names do not allow."
)

// ParseDomain returns name as lowercase A-labels without a trailing dot: the form in which names
// are stored, compared and looked up. It maps and checks Unicode names by IDNA2008. It rejects
// underscores, IP addresses and names of a single label. The code of its errors is invalid_domain.
func ParseDomain(name string) (string, error) { return parseDomain(name, ownDomainRules) }

// ParseMailDomain is ParseDomain for the domains of remote addresses and signatures, which may have
// underscores.
func ParseMailDomain(name string) (string, error) { return parseDomain(name, mailDomainRules) }

// ParseHostname is ParseDomain that also accepts names of a single label, for example localhost.
func ParseHostname(name string) (string, error) { return parseDomain(name, hostnameRules) }

// domainRules says which forms of a name are allowed.
type domainRules struct{ singleLabel, underscores bool }

var ownDomainRules, mailDomainRules, hostnameRules = domainRules{}, domainRules{underscores: true}, domainRules{singleLabel: true}

func parseDomain(name string, may domainRules) (string, error) {
	s, why := normalizeDomain(name, may)
	if why != "" {
		return "", invalid("invalid_domain", why)
	}
	return s, nil
}

func normalizeDomain(name string, may domainRules) (string, string) {
	if len(name) > maxInput {
		return "", whyDomainLong
	}
	if strings.IndexByte(name, ':') >= 0 {
		if _, err := netip.ParseAddr(name); err == nil {
			return "", whyDomainIP
		}
	}
	plain := true
	for i := range len(name) {
		if name[i] >= 0x80 || name[i]|0x20 == 'x' && hasPunycode(name[i:]) {
			plain = false
			break
		}
	}
	if !plain {
		// The profile accepts invalid UTF-8 as U+FFFD.
		s, err := idnaProfile.ToASCII(name)
		if err != nil || !utf8.ValidString(name) {
			return "", whyDomainIDN
		}
		name = s
	}
	return normalizeLDH(name, may)
}

func hasPunycode(s string) bool {
	return len(s) >= 4 && s[1]|0x20 == 'n' && s[2:4] == "--"
}

// normalizeLDH checks the letter-digit-hyphen rule (RFC 1123 §2.1, RFC 5321 §2.3.5) and converts
// the name to lower case.
func normalizeLDH(name string, may domainRules) (string, string) {
	name = strings.TrimSuffix(name, ".")
	switch {
	case name == "":
		return "", whyDomainEmpty
	case len(name) > MaxDomain:
		return "", whyDomainLong
	}
	labels, start, digits := 0, 0, true
	for i := 0; i <= len(name); i++ {
		if i == len(name) || name[i] == '.' {
			if n := i - start; n == 0 || n > 63 || name[start] == '-' || name[i-1] == '-' {
				return "", whyDomainLabel
			}
			labels++
			start = i + 1
			if i < len(name) {
				digits = true
			}
			continue
		}
		switch c := name[i] | 0x20; {
		case '0' <= name[i] && name[i] <= '9':
		case 'a' <= c && c <= 'z', name[i] == '-', name[i] == '_' && may.underscores:
			digits = false
		default:
			return "", whyDomainLabel
		}
	}
	// No top-level domain is all digits (RFC 3696 §2), but every IPv4 address ends
	// with digits, in each of the forms that some library accepts.
	if digits {
		return "", whyDomainIP
	}
	if labels == 1 && !may.singleLabel {
		return "", whyDomainSingle
	}
	return strings.ToLower(name), ""
}

// IsPublicSuffix reports whether others can register names under a normalized name (co.uk,
// github.io, any single label), so that no account may claim it. Names under the reserved domains
// follow the default rule: test is a public suffix, demo.test is not.
func IsPublicSuffix(name string) bool {
	suffix, _ := publicsuffix.PublicSuffix(name)
	return suffix == name
}
