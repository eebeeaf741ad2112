// SPDX-License-Identifier: Apache-2.0

package route

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/mailstead/mailstead/internal/address"
)

// maxPolicySize bounds the text of a policy, in octets (RFC 8461 §3.3).
const maxPolicySize = 64 << 10

// maxPolicyAge is the maximum lifetime of a policy (RFC 8461 §3.2).
const maxPolicyAge = 31557600 * time.Second

// STSMode says what to do when a host does not satisfy a policy (RFC 8461 §5).
type STSMode string

// The modes.
const (
	STSEnforce STSMode = "enforce" // don't send to the host
	STSTesting STSMode = "testing" // send anyway
	STSNone    STSMode = "none"    // no policy any more
)

// STSPolicy is a domain's policy for its MX hosts (RFC 8461 §3.2).
type STSPolicy struct {
	Mode   STSMode
	MaxAge time.Duration
	// MX are the patterns that host names must match: a name in A-labels, or "*." and a name, for
	// names one label below it.
	MX []string
}

// text renders the policy for storage.
func (p *STSPolicy) text() string {
	var b strings.Builder
	fmt.Fprintf(&b, "version: STSv1\nmode: %s\nmax_age: %d\n", p.Mode, p.MaxAge/time.Second)
	for _, m := range p.MX {
		fmt.Fprintf(&b, "mx: %s\n", m)
	}
	return b.String()
}

// invalidPolicyError says what is wrong with a policy text, without repeating any of it.
func invalidPolicyError(why string) error { return errors.New("the policy is not valid: " + why) }

// ParseSTSPolicy parses a policy. It ignores unknown fields. If a field that may occur only once is
// repeated, the first counts.
func ParseSTSPolicy(text string) (*STSPolicy, error) {
	if len(text) > maxPolicySize {
		return nil, invalidPolicyError("it is longer than 64 KiB")
	}
	return parseSTSPolicyText(text)
}

// parseSTSPolicyText is ParseSTSPolicy without the size limit: our stored form may be longer than
// the fetched text.
func parseSTSPolicyText(text string) (*STSPolicy, error) {
	fields := map[string]string{}
	p := &STSPolicy{}
	for line := range strings.SplitSeq(text, "\n") {
		line = strings.TrimRight(strings.TrimSuffix(line, "\r"), " \t")
		if line == "" {
			continue
		}
		key, value, ok := strings.Cut(line, ":")
		if !ok {
			return nil, invalidPolicyError("a line has no colon")
		}
		value = strings.TrimLeft(value, " \t")
		if key == "mx" {
			pattern, err := parseMXPattern(value)
			if err != nil {
				return nil, err
			}
			p.MX = append(p.MX, pattern)
		} else if _, twice := fields[key]; !twice {
			fields[key] = value
		}
	}
	if fields["version"] != "STSv1" {
		return nil, invalidPolicyError("its version is not STSv1")
	}
	switch p.Mode = STSMode(fields["mode"]); p.Mode {
	case STSEnforce, STSTesting, STSNone:
	default:
		return nil, invalidPolicyError("its mode is none of enforce, testing and none")
	}
	if p.Mode != STSNone && len(p.MX) == 0 {
		return nil, invalidPolicyError("it names no mx")
	}
	age := fields["max_age"]
	seconds, err := strconv.ParseUint(age, 10, 63)
	if err != nil || len(age) > 10 {
		return nil, invalidPolicyError("its max_age is not a number of seconds")
	}
	p.MaxAge = min(time.Duration(min(seconds, 1<<32))*time.Second, maxPolicyAge)
	return p, nil
}

func parseMXPattern(s string) (string, error) {
	name, wild := strings.CutPrefix(s, "*.")
	host, err := address.ParseHostname(name)
	if err != nil {
		return "", invalidPolicyError("an mx is not a host name")
	}
	if wild {
		return "*." + host, nil
	}
	return host, nil
}

// Allows reports whether a host name (A-labels, lower case) matches one of the patterns (RFC 8461
// §4.1).
func (p *STSPolicy) Allows(host string) bool {
	_, parent, _ := strings.Cut(host, ".")
	for _, pattern := range p.MX {
		if base, wild := strings.CutPrefix(pattern, "*."); wild && parent != "" && base == parent || pattern == host {
			return true
		}
	}
	return false
}

// parseSTSRecord returns the version in the TXT records at _mta-sts.DOMAIN (RFC 8461 §3.1), or ""
// if the domain has no policy.
func parseSTSRecord(records []string) string {
	id, found := "", 0
	for _, r := range records {
		version, rest, _ := strings.Cut(r, ";")
		if strings.TrimRight(version, " \t") != "v=STSv1" {
			continue
		}
		found++
		for field := range strings.SplitSeq(rest, ";") {
			key, value, _ := strings.Cut(strings.Trim(field, " \t"), "=")
			if key == "id" && id == "" && validPolicyID(value) {
				id = value
			}
		}
	}
	if found != 1 {
		return ""
	}
	return id
}

func validPolicyID(s string) bool {
	if s == "" || len(s) > 32 {
		return false
	}
	for i := range len(s) {
		c := s[i] | 0x20
		if (c < 'a' || c > 'z') && (s[i] < '0' || s[i] > '9') {
			return false
		}
	}
	return true
}
