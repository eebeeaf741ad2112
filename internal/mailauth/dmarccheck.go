// SPDX-License-Identifier: Apache-2.0

package mailauth

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// CheckDMARCRecord checks the TXT records at _dmarc.<domain>: there must be exactly one valid DMARC
// record (RFC 7489 section 6.3, RFC 9989), with any policy. Otherwise, problem tells the owner what
// to change.
func CheckDMARCRecord(txts []string) (ok bool, problem string) {
	const publish = " Publish at least: v=DMARC1; p=none"
	var records []string
	var near string
	for _, txt := range limitRecords(txts) {
		switch {
		case isDMARC(txt):
			records = append(records, txt)
		case hasPrefixFold(strings.TrimLeft(txt, "\"' \t"), "v=dmarc"), hasPrefixFold(strings.TrimLeft(txt, "\"' \t"), "dmarc"):
			near = txt
		}
	}
	switch {
	case len(records) > 1:
		return false, fmt.Sprintf("%d DMARC records were found, and receivers then ignore them all. Keep one.", len(records))
	case len(records) == 1:
	case near != "":
		return false, fmt.Sprintf("A DMARC record must begin with exactly “v=DMARC1;”, in capitals; this one begins with “%s”.", printable(near[:min(len(near), 12)])) + publish
	default:
		return false, "No DMARC record was found." + publish
	}
	list, problem := parseTags(records[0])
	if problem == "" {
		problem = checkDMARCTags(list.withLowerNames())
	}
	return problem == "", problem
}

// isDMARC reports whether receivers consider txt a DMARC record: v=DMARC1, surrounded only by
// blanks, up to a semicolon or the end. Unlike in DKIM, tag names are case-insensitive; the version
// is case-sensitive.
func isDMARC(txt string) bool {
	first, _, _ := strings.Cut(txt, ";")
	name, value, ok := strings.Cut(first, "=")
	return ok && strings.EqualFold(strings.TrimRight(name, " \t"), "v") && strings.Trim(value, " \t") == "DMARC1"
}

func checkDMARCTags(list tags, problem string) string {
	if problem != "" {
		return problem
	}
	_, reports := list.get("rua")
	if _, ok := list.get("p"); !ok && !reports {
		return "The DMARC record has no policy. Add p=none, p=quarantine or p=reject."
	}
	for _, t := range list {
		if problem := checkDMARCTag(t.name, t.value); problem != "" {
			return problem
		}
	}
	return ""
}

func checkDMARCTag(name, value string) string {
	oneOf := func(allowed ...string) string {
		if slices.Contains(allowed, strings.ToLower(value)) {
			return ""
		}
		last := len(allowed) - 1
		return fmt.Sprintf("The DMARC record has %s=%s, which is not valid. Use %s or %s.",
			name, printable(value), strings.Join(allowed[:last], ", "), allowed[last])
	}
	switch name {
	case "p", "sp", "np":
		return oneOf("none", "quarantine", "reject")
	case "adkim", "aspf":
		return oneOf("r", "s")
	case "t":
		return oneOf("y", "n")
	case "psd":
		return oneOf("y", "n", "u")
	case "pct":
		if n, err := strconv.Atoi(value); err != nil || n < 0 || n > 100 {
			return fmt.Sprintf("The DMARC record has pct=%s, which is not valid. Use a number from 0 to 100.", printable(value))
		}
	case "rua", "ruf":
		for uri := range strings.SplitSeq(value, ",") {
			uri = strings.TrimSpace(uri)
			if hasPrefixFold(uri, "https:") {
				continue
			}
			if !hasPrefixFold(uri, "mailto:") || !strings.Contains(uri[len("mailto:"):], "@") {
				return fmt.Sprintf("The DMARC record's %s= has “%s”. Each address is to be written as mailto:name@domain, with commas between them.", name, printable(uri))
			}
		}
	}
	return ""
}
