// SPDX-License-Identifier: Apache-2.0

package mailauth

import (
	"net/netip"
	"regexp"
	"strconv"
	"strings"
)

// parsedSPF is a parsed record. It must parse completely before any of it counts (RFC 7208 §4.6).
type parsedSPF struct {
	directives    []directive
	redirect, exp string // domain-specs; "" for none
}

// directive is a mechanism with the result of a match.
type directive struct {
	result             Result
	kind               string
	domain             string // domain-spec; "" for the current domain
	ipv4Bits, ipv6Bits int    // prefix lengths of a and mx
	network            netip.Prefix
}

// inNetwork reports whether an address from a lookup matches the client's.
func (d *directive) inNetwork(found, client netip.Addr) bool {
	bits := d.ipv6Bits
	if client.Is4() {
		bits = d.ipv4Bits
	}
	p, err := found.Prefix(bits)
	return err == nil && p.Contains(client)
}

var (
	modifierPattern = regexp.MustCompile(`^([A-Za-z][A-Za-z0-9._-]*)=(.*)$`)
	dualCIDRPattern = regexp.MustCompile(`^(.*?)(?:/([0-9]+))?(?://([0-9]+))?$`)
)

// parseSPF parses a record. bad is why it is a permanent error.
func parseSPF(text string) (r parsedSPF, bad string) {
	for i := range len(text) {
		if text[i] < ' ' || text[i] > '~' {
			return r, "it has characters that are not ASCII"
		}
	}
	seen := map[string]bool{}
	for _, term := range spfTerms(text) {
		if m := modifierPattern.FindStringSubmatch(term); m != nil {
			name, value := strings.ToLower(m[1]), m[2]
			if name != "redirect" && name != "exp" {
				if !isMacroString(value, false) {
					return r, "bad " + printable(term)
				}
				continue
			}
			if seen[name] || !isDomainSpec(value) {
				return r, "bad or repeated " + printable(term)
			}
			seen[name] = true
			if name == "exp" {
				r.exp = value
			} else {
				r.redirect = value
			}
			continue
		}
		d, ok := parseDirective(term)
		if !ok {
			return r, "bad " + printable(term)
		}
		r.directives = append(r.directives, d)
	}
	return r, ""
}

func parseDirective(term string) (directive, bool) {
	qualifier, bare := cutQualifier(term)
	d := directive{ipv4Bits: 32, ipv6Bits: 128}
	switch qualifier {
	case '+':
		d.result = Pass
	case '-':
		d.result = Fail
	case '~':
		d.result = SoftFail
	case '?':
		d.result = Neutral
	}
	n := strings.IndexAny(bare, ":/")
	if n < 0 {
		n = len(bare)
	}
	d.kind = strings.ToLower(bare[:n])
	rest := bare[n:]
	value, colon := strings.CutPrefix(rest, ":")
	switch d.kind {
	case "all":
		return d, rest == ""
	case "include", "exists":
		d.domain = value
		return d, colon && isDomainSpec(value)
	case "ptr":
		d.domain = value
		return d, rest == "" || colon && isDomainSpec(value)
	case "a", "mx":
		m := dualCIDRPattern.FindStringSubmatch(rest)
		ok := parsePrefixLength(m[2], 32, &d.ipv4Bits) && parsePrefixLength(m[3], 128, &d.ipv6Bits)
		if m[1] == "" {
			return d, ok
		}
		d.domain, colon = strings.CutPrefix(m[1], ":")
		return d, ok && colon && isDomainSpec(d.domain)
	case "ip4", "ip6":
		return d, colon && d.parseNetwork(value)
	}
	return d, false
}

// parsePrefixLength parses a length without leading zeros.
func parsePrefixLength(s string, most int, out *int) bool {
	if s == "" {
		return true
	}
	n, err := strconv.Atoi(s)
	*out = n
	return err == nil && n <= most && (len(s) == 1 || s[0] != '0')
}

func (d *directive) parseNetwork(value string) bool {
	text, length, has := strings.Cut(value, "/")
	addr, err := netip.ParseAddr(text)
	if err != nil || addr.Zone() != "" || addr.Is4() != (d.kind == "ip4") || has && length == "" {
		return false
	}
	bits := addr.BitLen()
	if !parsePrefixLength(length, addr.BitLen(), &bits) {
		return false
	}
	if addr.Is4In6() { // an IPv4 client must not match it
		addr = netip.AddrFrom16(addr.As16())
	}
	d.network = netip.PrefixFrom(addr, bits).Masked()
	return true
}
