// SPDX-License-Identifier: Apache-2.0

package domain

import (
	"fmt"
	"strings"

	"github.com/mailstead/mailstead/internal/dns"
)

// verifyMX requires us to be the first choice. A backup behind us is the owner's decision; an MX of
// equal or better preference receives mail that our mailboxes never get.
func verifyMX(host string, r *Record, got []dns.MX) recordResult {
	var observed []string
	ours, best := -1, 1<<16
	var first, same string // the best of the others, and one with our preference
	for _, m := range got {
		observed = append(observed, fmt.Sprintf("%d %s", m.Preference, m.Host))
		p := int(m.Preference)
		if m.Host == host {
			if ours < 0 || p < ours {
				ours = p
			}
		} else if p < best {
			first, best = m.Host, p
		}
	}
	if best == ours {
		same = first
	}
	switch {
	case dns.IsNullMX(got):
		return failedResult(observed, "The MX record (0 .) says that %s takes no mail at all. Replace it with: %s", r.Name, r.displayValue())
	case ours < 0:
		return failedResult(observed, "Mail for %s goes to %s, not to us. Publish MX %s and, once your mailboxes are here, remove the others.", r.Name, first, r.displayValue())
	case same != "":
		return failedResult(observed, "%s has the same preference (%d) as %s, so only a part of your mail arrives here. Remove it, or give it a higher number.", same, ours, host)
	case best < ours:
		return failedResult(observed, "Mail goes to %s first (preference %d; ours is %d). Remove it, or give ours a lower number than all others.", first, best, ours)
	}
	return verifiedResult(observed)
}

func verifyCNAME(r *Record, got []string) recordResult {
	if len(got) == 1 && got[0] == r.Value {
		return verifiedResult(got)
	}
	return failedResult(got, "%s points to %s. Make it a CNAME to %s.", r.Name, strings.Join(printableValues(got), ", "), r.Value)
}

// verifySRV requires us to be the clients' first choice; our weight doesn't matter.
func verifySRV(r *Record, got []dns.SRV) recordResult {
	var weight, port uint16
	var host string
	if _, err := fmt.Sscan(r.Value, &weight, &port, &host); err != nil {
		return failedResult(nil, "The record that we ask for cannot be read.")
	}
	var observed []string
	for _, s := range got {
		observed = append(observed, fmt.Sprintf("%d %d %d %s", s.Priority, s.Weight, s.Port, s.Target))
	}
	for _, s := range got {
		if s.Priority > got[0].Priority {
			break
		}
		switch {
		case s.Target == ".":
			return failedResult(observed, "The record at %s says that there is no such service. Replace it with: %s", r.Name, r.displayValue())
		case s.Target == host && s.Port == port:
			return verifiedResult(observed)
		case s.Target == host:
			return failedResult(observed, "%s points to port %d of %s, but the service is on port %d.", r.Name, s.Port, host, port)
		}
	}
	return failedResult(observed, "%s points to %s. Replace it with: %s", r.Name, got[0].Target, r.displayValue())
}

// findPolicyTag returns a tag of the one TXT record that begins with the version v=version, such as
// id of v=STSv1 (RFC 8461 §3.1, RFC 8460 §3). Matching is case-sensitive, without blanks around
// "=", because senders read it that way.
func findPolicyTag(txts []string, version, tag string) (value, problem string) {
	var record string
	for _, txt := range txts[:min(len(txts), maxTXTRecords)] {
		v, rest, _ := strings.Cut(txt[:min(len(txt), maxObservedValue)], ";")
		if strings.TrimRight(v, " \t") != "v="+version {
			continue
		}
		if record != "" {
			return "", fmt.Sprintf("There is more than one record v=%s; keep one.", version)
		}
		record = rest + ";"
	}
	if record == "" {
		return "", fmt.Sprintf("There is a TXT record, but it does not begin with v=%s; in just these letters.", version)
	}
	for part := range strings.SplitSeq(record, ";") {
		if name, value, ok := strings.Cut(strings.Trim(part, " \t"), "="); ok && name == tag {
			return value, ""
		}
	}
	return "", fmt.Sprintf("The record lacks %s=.", tag)
}

func verifyMTASTS(txts []string) (bool, string) {
	id, problem := findPolicyTag(txts, "STSv1", "id")
	bad := func(r rune) bool { return (r < '0' || r > '9') && (r < 'A' || r > 'Z') && (r < 'a' || r > 'z') }
	if problem == "" && (id == "" || len(id) > 32 || strings.ContainsFunc(id, bad)) {
		problem = "The record's id= must be 1 to 32 letters and digits."
	}
	return problem == "", problem
}

func verifyTLSRPT(txts []string) (bool, string) {
	rua, problem := findPolicyTag(txts, "TLSRPTv1", "rua")
	scheme, _, _ := strings.Cut(strings.ToLower(rua), ":")
	if problem == "" && scheme != "mailto" && scheme != "https" {
		problem = "The record's rua= must be an address such as mailto:postmaster@ your domain."
	}
	return problem == "", problem
}
