// SPDX-License-Identifier: Apache-2.0

package mailauth

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// maxSPFLookups is the maximum number of terms in a record that need DNS (RFC 7208 section 4.6.4).
const maxSPFLookups = 10

// CheckSPFRecord checks the TXT records of a domain: there must be exactly one SPF record, it must
// be valid, and it must include the given domain (such as spf.<host>). What it says about others
// ("all") is up to the owner. Otherwise, problem tells the owner what to publish.
func CheckSPFRecord(txts []string, include string) (ok bool, problem string) {
	want := "include:" + include
	var records [][]string
	for _, txt := range limitRecords(txts) {
		if len(txt) <= maxRecordSize && (strings.EqualFold(txt, "v=spf1") || hasPrefixFold(txt, "v=spf1 ")) {
			records = append(records, spfTerms(txt))
		}
	}
	switch len(records) {
	case 0:
		return false, missingSPFProblem(txts, want)
	case 1:
	default:
		return false, fmt.Sprintf("%d SPF records were found, and receivers then ignore them all. Replace them with this one: %s",
			len(records), formatSPF(mergeSPF(records), want))
	}
	terms := records[0]
	for _, t := range terms {
		if reason := termProblem(t); reason != "" {
			return false, fmt.Sprintf("The part “%s” of the SPF record %s, and receivers then ignore the whole record. Correct it, and make sure that %s is in the record.",
				printable(t), reason, want)
		}
	}
	if problem := includeProblem(terms, want); problem != "" {
		return false, problem + " Publish this instead: " + formatSPF(terms, want)
	}
	if n := spfLookups(terms); n > maxSPFLookups {
		return false, fmt.Sprintf("The SPF record makes receivers ask the DNS %d times, and they give up after %d. Remove what you no longer need.", n, maxSPFLookups)
	}
	return true, ""
}

// spfTerms splits only at spaces, so that a pasted no-break space shows up as an error.
func spfTerms(txt string) []string {
	return slices.DeleteFunc(strings.Split(txt, " ")[1:], func(t string) bool { return t == "" })
}

func missingSPFProblem(txts []string, want string) string {
	publish := "Publish: " + formatSPF(nil, want)
	for _, txt := range limitRecords(txts) {
		_, rest, found := strings.Cut(strings.ToLower(txt[:min(len(txt), maxRecordSize)]), "v=spf1")
		if found && (rest == "" || rest[0] < '0' || rest[0] > '9') {
			return fmt.Sprintf("A TXT record mentions v=spf1, but an SPF record must begin with exactly “v=spf1” and a space; this one begins with “%s”. %s", printable(txt[:min(len(txt), 12)]), publish)
		}
	}
	return "No SPF record was found. " + publish
}

// includeProblem returns why our include has no effect, or "".
func includeProblem(terms []string, want string) string {
	after := false
	for _, t := range terms {
		qualifier, bare := cutQualifier(t)
		if strings.EqualFold(bare, "all") {
			after = true
		}
		if !strings.EqualFold(strings.TrimSuffix(bare, "."), want) {
			continue
		}
		if after {
			return fmt.Sprintf("In the SPF record %s stands behind “all”, where receivers do not read it.", want)
		}
		if qualifier != '+' {
			return fmt.Sprintf("In the SPF record %s has a “%c” before it, so that it does not allow our servers.", want, qualifier)
		}
		return ""
	}
	return fmt.Sprintf("The SPF record does not allow our servers: it lacks %s.", want)
}

// formatSPF returns a record of the given terms, with want at an effective position.
func formatSPF(terms []string, want string) string {
	parts := []string{"v=spf1"}
	var all, redirect string
	for _, t := range terms {
		_, bare := cutQualifier(t)
		switch {
		case strings.EqualFold(bare, "all"):
			if all == "" {
				all = t
			}
		case hasPrefixFold(t, "redirect="):
			redirect = t
		case !strings.EqualFold(strings.TrimSuffix(bare, "."), want):
			parts = append(parts, t)
		}
	}
	parts = append(parts, want)
	switch {
	case all != "":
		parts = append(parts, all)
	case redirect != "":
		parts = append(parts, redirect)
	default:
		parts = append(parts, "~all")
	}
	return strings.Join(parts, " ")
}

// mergeSPF merges the valid terms of several records, without duplicates.
func mergeSPF(records [][]string) []string {
	var terms []string
	for _, r := range records {
		for _, t := range r {
			if termProblem(t) == "" && !slices.ContainsFunc(terms, func(have string) bool { return strings.EqualFold(have, t) }) {
				terms = append(terms, t)
			}
		}
	}
	return terms
}

func cutQualifier(term string) (byte, string) {
	if term != "" && strings.IndexByte("+-~?", term[0]) >= 0 {
		return term[0], term[1:]
	}
	return '+', term
}

// mechanism splits a term into its lower-case name and the rest with its separator, as in a,
// a:domain, a/24, a:domain/24.
func mechanism(term string) (name, arg string) {
	_, bare := cutQualifier(term)
	i := strings.IndexAny(bare, ":/=")
	if i < 0 {
		return strings.ToLower(bare), ""
	}
	return strings.ToLower(bare[:i]), bare[i:]
}

func spfLookups(terms []string) int {
	n := 0
	for _, t := range terms {
		switch name, _ := mechanism(t); name {
		case "include", "a", "mx", "ptr", "exists", "redirect":
			n++
		}
	}
	return n
}

// termProblem returns what is wrong with a term, or "" (RFC 7208 section 12, without the macro
// grammar).
func termProblem(term string) string {
	for i := range len(term) {
		if term[i] <= ' ' || term[i] >= 0x7f {
			return "has characters that are not allowed"
		}
	}
	name, arg := mechanism(term)
	if strings.HasPrefix(arg, "=") {
		return modifierProblem(term, name, arg[1:])
	}
	switch name {
	case "all":
		if arg != "" {
			return "must be “all” alone"
		}
	case "include", "exists":
		if len(arg) < 2 || arg[0] != ':' {
			return "lacks a domain after “" + name + ":”"
		}
	case "a", "mx", "ptr":
		host, length, _ := strings.Cut(arg, "/")
		if host == ":" {
			return "lacks a domain after the colon"
		}
		if strings.Contains(arg, "/") && prefixProblem(length) {
			return "has a network length that is not valid"
		}
	case "ip4", "ip6":
		return ipProblem(name, arg)
	default:
		return "is not known to SPF"
	}
	return ""
}

func modifierProblem(term, name, value string) string {
	switch {
	case name == "" || strings.IndexByte("+-~?", term[0]) >= 0:
		return "is not valid"
	case (name == "redirect" || name == "exp") && value == "":
		return "lacks a domain"
	case name == "include" || name == "ip4" || name == "ip6" || name == "a" || name == "mx":
		return "has “=” where a colon belongs"
	}
	return ""
}

// prefixProblem checks the text after the first slash, as in 24, 24//64 and /64.
func prefixProblem(s string) bool {
	four, six, dual := strings.Cut(s, "//")
	if rest, only := strings.CutPrefix(s, "/"); only {
		four, six, dual = "", rest, true
	}
	bad := func(s string, most int) bool {
		n, err := strconv.Atoi(s)
		return err != nil || n < 0 || n > most || s[0] == '+'
	}
	return four != "" && bad(four, 32) || four == "" && !dual || dual && bad(six, 128)
}

func ipProblem(name, arg string) string {
	text, ok := strings.CutPrefix(arg, ":")
	if !ok {
		return "lacks an address after “" + name + ":”"
	}
	addr, err := netip.ParseAddr(text)
	if p, perr := netip.ParsePrefix(text); perr == nil {
		addr, err = p.Addr(), nil
	}
	switch {
	case err != nil || addr.Zone() != "":
		return "has an address that is not valid"
	case name == "ip4" && !addr.Is4():
		return "has an address that is not IPv4; write ip6: for IPv6"
	case name == "ip6" && !addr.Is6():
		return "has an address that is not IPv6; write ip4: for IPv4"
	}
	return ""
}
