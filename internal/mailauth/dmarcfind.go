// SPDX-License-Identifier: Apache-2.0

package mailauth

import (
	"context"
	"errors"
	"net/url"
	"strconv"
	"strings"
	"sync"

	"github.com/mailstead/mailstead/internal/dns"
)

// maxTreeWalk is the number of queries in a DNS tree walk (RFC 9989 §4.10).
const maxTreeWalk = 8

// dmarcRecord is a domain's policy record. p, sp and np are valid; sp and np may be empty.
type dmarcRecord struct {
	domain     string
	p, sp, np  Policy
	strictDKIM bool
	strictSPF  bool
	psd        byte // y, n or u
	testing    bool
	invalid    bool // whether the record exists but requests no policy
}

// dmarcFinder looks up the policies for one message, each once.
type dmarcFinder struct {
	dns     *dns.Resolver
	mu      sync.Mutex
	lookups map[string]*dmarcLookup
}

type dmarcLookup struct {
	done   chan struct{}
	record *dmarcRecord // nil if there is none
	err    error        // only temporary errors
}

// lookup starts the lookup of a domain's own record, without waiting for DNS.
func (f *dmarcFinder) lookup(ctx context.Context, domain string) *dmarcLookup {
	f.mu.Lock()
	defer f.mu.Unlock()
	if a := f.lookups[domain]; a != nil {
		return a
	}
	a := &dmarcLookup{done: make(chan struct{})}
	f.lookups[domain] = a
	look := func(r *dns.Resolver) {
		answer, err := r.TXT(ctx, "_dmarc."+domain)
		if a.err = nil; errors.Is(err, dns.ErrTemporary) {
			a.err = err
			return
		}
		a.record = parseDMARC(domain, answer.Records)
	}
	if tryCached(f.dns, look) {
		close(a.done)
		return a
	}
	go func() {
		defer close(a.done)
		look(f.dns)
	}()
	return a
}

func (f *dmarcFinder) record(ctx context.Context, domain string) (*dmarcRecord, error) {
	a := f.lookup(ctx, domain)
	<-a.done
	return a.record, a.err
}

// treeWalkNames returns the names that a tree walk queries, the domain itself first.
func treeWalkNames(domain string) []string {
	names := []string{domain}
	labels := strings.Split(domain, ".")
	from := 1
	if len(labels) >= maxTreeWalk {
		from = len(labels) - maxTreeWalk + 1
	}
	for ; from < len(labels); from++ {
		names = append(names, strings.Join(labels[from:], "."))
	}
	return names
}

// treeWalk returns the records from a domain upwards, up to one that marks an organizational
// boundary.
func (f *dmarcFinder) treeWalk(ctx context.Context, domain string) (found []*dmarcRecord, err error) {
	names := treeWalkNames(domain)
	for _, name := range names {
		f.lookup(ctx, name)
	}
	for _, name := range names {
		record, err := f.record(ctx, name)
		if err != nil {
			return nil, err
		}
		if record == nil {
			continue
		}
		if found = append(found, record); record.psd != 'u' {
			break
		}
	}
	return found, nil
}

// organizationalDomain returns the Organizational Domain of a domain from the records of its tree
// walk (RFC 9989 §4.10.2).
func organizationalDomain(domain string, found []*dmarcRecord) string {
	if len(found) == 0 {
		return domain
	}
	top := found[len(found)-1] // only the last one can mark a boundary
	if top.psd == 'y' && top.domain != domain {
		below := strings.TrimSuffix(domain, "."+top.domain)
		return below[strings.LastIndexByte(below, '.')+1:] + "." + top.domain
	}
	return top.domain
}

// policyRecord returns the record for an author's domain: its own, else its organization's, else
// the public suffix's (RFC 9989 §4.10.1). It returns nil if there is none.
func (f *dmarcFinder) policyRecord(ctx context.Context, author string) (*dmarcRecord, error) {
	own, err := f.record(ctx, author)
	if own != nil || err != nil {
		return own, err
	}
	found, err := f.treeWalk(ctx, author)
	if err != nil || len(found) == 0 {
		return nil, err
	}
	org := organizationalDomain(author, found)
	for _, r := range found {
		if r.domain == org {
			return r, nil
		}
	}
	return found[len(found)-1], nil
}

// isAligned reports whether a verified identifier is aligned with an author's domain.
func (f *dmarcFinder) isAligned(ctx context.Context, author, proven string, strict bool) (bool, error) {
	if proven == author || strict || proven == "" {
		return proven == author, nil
	}
	if !sameTLD(author, proven) {
		return false, nil
	}
	found, err := f.treeWalk(ctx, author)
	if err != nil {
		return false, err
	}
	org := organizationalDomain(author, found)
	if proven == org || !isSubdomainOf(proven, org) {
		return proven == org, nil // the identifier's organization is itself or above
	}
	if found, err = f.treeWalk(ctx, proven); err != nil {
		return false, err
	}
	return organizationalDomain(proven, found) == org, nil
}

// sameTLD reports whether two domains can belong to the same organization at all.
func sameTLD(a, b string) bool {
	return a[strings.LastIndexByte(a, '.')+1:] == b[strings.LastIndexByte(b, '.')+1:]
}

// domainExists reports whether a domain has addresses or mail exchangers. Without them, np= applies
// (RFC 9989 §3.2).
func (f *dmarcFinder) domainExists(ctx context.Context, domain string) (bool, error) {
	if _, err := f.dns.MX(ctx, domain); err == nil || errors.Is(err, dns.ErrTemporary) {
		return err == nil, err
	}
	_, err := f.dns.Addrs(ctx, domain)
	if errors.Is(err, dns.ErrTemporary) {
		return false, err
	}
	return err == nil, nil
}

// parseDMARC parses the records of a domain; nil unless there is exactly one. It ignores unknown or
// invalid tags (RFC 9989 §4.7), except policies: a record with an invalid policy counts as p=none
// if it requests reports, and is useless otherwise (§4.10.1).
func parseDMARC(domain string, txts []string) *dmarcRecord {
	var text string
	n := 0
	for _, txt := range limitRecords(txts) {
		if isDMARC(txt) {
			text = txt
			n++
		}
	}
	if n != 1 || len(text) > maxRecordSize {
		return nil
	}
	r := &dmarcRecord{domain: domain, psd: 'u'}
	seen := map[string]string{}
	for part := range strings.SplitSeq(text, ";") {
		name, value, ok := strings.Cut(part, "=")
		name = strings.ToLower(strings.TrimSpace(name))
		if _, twice := seen[name]; ok && !twice && len(seen) < maxTags {
			seen[name] = strings.TrimSpace(value)
		}
	}
	bad := false
	for name, at := range map[string]*Policy{"p": &r.p, "sp": &r.sp, "np": &r.np} {
		value, has := seen[name]
		*at = Policy(strings.ToLower(value))
		switch *at {
		case PolicyNone, PolicyQuarantine, PolicyReject:
		default:
			bad = bad || has || name == "p"
		}
	}
	r.strictDKIM, r.strictSPF = strings.EqualFold(seen["adkim"], "s"), strings.EqualFold(seen["aspf"], "s")
	if psd := strings.ToLower(seen["psd"]); psd == "y" || psd == "n" {
		r.psd = psd[0]
	}
	t, told := seen["t"]
	pct, err := strconv.Atoi(seen["pct"])
	r.testing = strings.EqualFold(t, "y") || !told && err == nil && pct >= 0 && pct < 100
	if bad {
		r.p, r.sp, r.np, r.invalid = PolicyNone, "", "", !wantsReports(seen["rua"])
	}
	return r
}

func wantsReports(rua string) bool {
	for uri := range strings.SplitSeq(rua, ",") {
		if u, err := url.Parse(strings.TrimSpace(uri)); err == nil && u.Scheme != "" {
			return true
		}
	}
	return false
}
