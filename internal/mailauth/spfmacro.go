// SPDX-License-Identifier: Apache-2.0

package mailauth

import (
	"context"
	"encoding/hex"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

var (
	// macroPattern matches a macro-expand (RFC 7208 §7.1).
	macroPattern = regexp.MustCompile(`%\{([A-Za-z])([0-9]*)([rR]?)([-.+,/_=]*)\}|%%|%_|%-`)
	// topLabelPattern matches the end of a domain-spec that does not end in a macro.
	topLabelPattern = regexp.MustCompile(`\.([A-Za-z0-9]|[A-Za-z0-9][A-Za-z0-9-]*[A-Za-z0-9])\.?$`)
	numericPattern  = regexp.MustCompile(`^\.[0-9]+\.?$`)
)

// isMacroString reports whether text is a macro-string. explained also allows the macros of
// explanations.
func isMacroString(text string, explained bool) bool {
	mails := "slodiphv"
	if explained {
		mails += "crt"
	}
	for _, m := range macroPattern.FindAllStringSubmatch(text, -1) {
		if m[1] == "" {
			continue
		}
		if n, err := strconv.Atoi(m[2]); !strings.Contains(mails, strings.ToLower(m[1])) || m[2] != "" && (err != nil || n == 0) {
			return false
		}
	}
	return !strings.Contains(macroPattern.ReplaceAllString(text, ""), "%")
}

// isDomainSpec reports whether text is a domain-spec.
func isDomainSpec(text string) bool {
	if !isMacroString(text, false) {
		return false
	}
	all := macroPattern.FindAllStringIndex(text, -1)
	if n := len(all); n > 0 && all[n-1][1] == len(text) && strings.HasSuffix(text, "}") {
		return true
	}
	end := topLabelPattern.FindString(text)
	return end != "" && !numericPattern.MatchString(end)
}

// expandDomain expands a domain-spec. It removes labels from the left of a name that is too long
// (RFC 7208 §7.3). It returns false if the result is not a name.
func (s *spfEvaluation) expandDomain(ctx context.Context, spec, domain string) (string, bool) {
	name := strings.TrimSuffix(s.expand(ctx, spec, domain), ".")
	for len(name) > 253 {
		_, rest, ok := strings.Cut(name, ".")
		if !ok {
			return "", false
		}
		name = rest
	}
	for label := range strings.SplitSeq(name, ".") {
		if label == "" || len(label) > 63 {
			return "", false
		}
	}
	return strings.ToLower(name), true
}

// expand expands a valid macro-string. The result is limited, because a short macro can produce a
// long text.
func (s *spfEvaluation) expand(ctx context.Context, text, domain string) string {
	const most = 2048
	var b strings.Builder
	at := 0
	for _, m := range macroPattern.FindAllStringSubmatchIndex(text, -1) {
		b.WriteString(text[at:m[0]])
		at = m[1]
		if m[2] < 0 {
			switch text[m[0]+1] {
			case '_':
				b.WriteByte(' ')
			case '-':
				b.WriteString("%20")
			default:
				b.WriteByte('%')
			}
			continue
		}
		if b.Len() < most {
			b.WriteString(s.expandMacro(ctx, text[m[2]:m[3]], text[m[4]:m[5]], m[6] < m[7], text[m[8]:m[9]], domain))
		}
	}
	b.WriteString(text[at:])
	return b.String()
}

func (s *spfEvaluation) expandMacro(ctx context.Context, mail, digits string, reverse bool, delimiters, domain string) string {
	value := s.macroValue(ctx, strings.ToLower(mail), domain)
	if delimiters == "" {
		delimiters = "."
	}
	parts := splitAny(value, delimiters)
	if reverse {
		slices.Reverse(parts)
	}
	if n, err := strconv.Atoi(digits); err == nil && n < len(parts) {
		parts = parts[len(parts)-n:]
	}
	value = strings.Join(parts, ".")
	if mail[0] >= 'a' {
		return value
	}
	return escapeURL(value)
}

// splitAny splits s at each of the delimiters; parts may be empty.
func splitAny(s, delimiters string) []string {
	var parts []string
	for {
		i := strings.IndexAny(s, delimiters)
		if i < 0 {
			return append(parts, s)
		}
		parts = append(parts, s[:i])
		s = s[i+1:]
	}
}

// escapeURL percent-encodes everything except unreserved characters (RFC 3986 §2.3).
func escapeURL(s string) string {
	const digits = "0123456789ABCDEF"
	var b strings.Builder
	for i := range len(s) {
		c := s[i]
		if c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.IndexByte("-._~", c) >= 0 {
			b.WriteByte(c)
		} else {
			b.Write([]byte{'%', digits[c>>4], digits[c&15]})
		}
	}
	return b.String()
}

// macroValue returns the value of a macro before truncation and reversal.
func (s *spfEvaluation) macroValue(ctx context.Context, mail, domain string) string {
	switch mail {
	case "s":
		return s.localPart + "@" + s.senderDomain
	case "l":
		return s.localPart
	case "o":
		return s.senderDomain
	case "d":
		return domain
	case "i":
		return dottedIP(s.ip)
	case "p":
		return s.clientName(ctx, domain)
	case "h":
		return s.helo
	case "v":
		if s.ip.Is4() {
			return "in-addr"
		}
		return "ip6"
	case "c":
		return s.ip.String()
	case "r":
		return "unknown"
	}
	return strconv.FormatInt(time.Now().Unix(), 10) // t
}

// dottedIP returns an address as in %{i}: IPv6 as nibbles.
func dottedIP(ip netip.Addr) string {
	if ip.Is4() {
		return ip.String()
	}
	raw := ip.As16()
	nibbles := strings.ToUpper(hex.EncodeToString(raw[:]))
	return strings.Join(strings.Split(nibbles, ""), ".")
}

// clientName returns %{p}: of the client's validated names the domain itself, else a subdomain of
// it, else any.
func (s *spfEvaluation) clientName(ctx context.Context, domain string) string {
	best := "unknown"
	for _, name := range s.clientNames(ctx) {
		switch {
		case strings.EqualFold(name, domain):
			return name
		case isSubdomainOf(name, domain):
			if !isSubdomainOf(best, domain) {
				best = name
			}
		case best == "unknown":
			best = name
		}
	}
	return best
}
