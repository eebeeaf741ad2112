// SPDX-License-Identifier: Apache-2.0

package mailauth

import (
	"net/netip"
	"regexp"
	"strconv"
	"strings"
)

// parsedSPF is a record that was read whole before any of it counts (RFC 7208
// §4.6).
type parsedSPF struct {
	directives    []directive
	redirect, exp string // their domain-spec; "" for none
}

// directive is a mechanism with what a match means.
type directive struct {
	result    Result
	kind      string
	domain    string // domain-spec; "" for the current domain
	four, six int    // prefix lengths of a and mx
	network   netip.Prefix
}

// near reports whether an address that was found matches the client's.
func (d *directive) near(found, client netip.Addr) bool {
	bits := d.six
	if client.Is4() {
		bits = d.four
	}
	p, err := found.Prefix(bits)
	return err == nil && p.Contains(client)
}

var (
	modifierForm = regexp.MustCompile(`^([A-Za-z][A-Za-z0-9._-]*)=(.*)$`)
	dualLength   = regexp.MustCompile(`^(.*?)(?:/([0-9]+))?(?://([0-9]+))?$`)
)

// parseSPF reads a record; bad says what makes it a permanent error.
func parseSPF(text string) (r parsedSPF, bad string) {
	for i := range len(text) {
		if text[i] < ' ' || text[i] > '~' {
			return r, "it has characters that are not ASCII"
		}
	}
	seen := map[string]bool{}
	for _, term := range spfTerms(text) {
		if m := modifierForm.FindStringSubmatch(term); m != nil {
			name, value := strings.ToLower(m[1]), m[2]
			if name != "redirect" && name != "exp" {
				if !validMacros(value, false) {
					return r, "bad " + shown(term)
				}
				continue
			}
			if seen[name] || !validSpec(value) {
				return r, "bad or repeated " + shown(term)
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
			return r, "bad " + shown(term)
		}
		r.directives = append(r.directives, d)
	}
	return r, ""
}

func parseDirective(term string) (directive, bool) {
	qualifier, bare := cutQualifier(term)
	d := directive{four: 32, six: 128}
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
		return d, colon && validSpec(value)
	case "ptr":
		d.domain = value
		return d, rest == "" || colon && validSpec(value)
	case "a", "mx":
		m := dualLength.FindStringSubmatch(rest)
		ok := prefixLength(m[2], 32, &d.four) && prefixLength(m[3], 128, &d.six)
		if m[1] == "" {
			return d, ok
		}
		d.domain, colon = strings.CutPrefix(m[1], ":")
		return d, ok && colon && validSpec(d.domain)
	case "ip4", "ip6":
		return d, colon && d.parseNetwork(value)
	}
	return d, false
}

// prefixLength reads a length without leading zeros.
func prefixLength(s string, most int, out *int) bool {
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
	if !prefixLength(length, addr.BitLen(), &bits) {
		return false
	}
	if addr.Is4In6() { // an IPv4 client is never meant by it
		addr = netip.AddrFrom16(addr.As16())
	}
	d.network = netip.PrefixFrom(addr, bits).Masked()
	return true
}
