// SPDX-License-Identifier: Apache-2.0

package mailauth

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/mailstead/mailstead/internal/dns"
)

// defaultTimeout is the time limit of the checks if Verifier has none (RFC 7208 §4.6.4). DMARC,
// which waits for the others, has a quarter more.
const defaultTimeout = 20 * time.Second

// Verifier authenticates messages received by SMTP. It is safe for concurrent use.
type Verifier struct {
	DNS *dns.Resolver
	// TrustedSealers are the domains of forwarders whose ARC seals are trusted, in A-labels.
	TrustedSealers []string
	Timeout        time.Duration // for each message's checks, a quarter more for DMARC; 20 s if 0
	Now            func() time.Time

	keys keyCache
}

// Results are the results of all checks.
type Results struct {
	IPRev IPRev
	SPF   SPF
	DKIM  []*DKIM // from the top of the header; at most 10
	ARC   ARC
	DMARC DMARC
}

// Verification verifies one message: write its body, then call Verify. It is not safe for
// concurrent use.
type Verification struct {
	verifier   *Verifier
	header     *headerIndex
	bodyHashes []*bodyHasher
	signatures []*DKIM
	arcSets    []arcSet
	arcContent signedContent
	arc        ARC
	authors    authorDomains
}

// Begin parses a message's original header of at most 1 MiB, which must not change afterwards. The
// body is hashed while it is written to the Verification, so that it is read only once.
func (j *Verifier) Begin(header []byte) *Verification {
	t := &Verification{verifier: j, header: indexHeader(header, "from", "dkim-signature", "arc-seal", "arc-message-signature", "arc-authentication-results")}
	t.authors = t.header.authors()
	t.readDKIM()
	t.readARC()
	signed := slices.Clone(t.arcContent.signedNames)
	for _, d := range t.signatures {
		signed = append(signed, d.signedNames...)
	}
	t.header.addNames(signed)
	t.rejectTruncated()
	return t
}

// rejectTruncated rejects signatures over names with too many fields.
func (t *Verification) rejectTruncated() {
	const why = "the header has too many fields that it signs"
	cut := func(name string) bool { return t.header.truncated[name] }
	for _, d := range t.signatures {
		if d.Result == "" && slices.ContainsFunc(d.signedNames, cut) {
			d.Result, d.Reason = PermError, why
		}
	}
	if t.arc.Result == "" && slices.ContainsFunc(t.arcContent.signedNames, cut) {
		t.arc.Result, t.arc.Reason = Fail, why
	}
}

// bodyHashFor returns the hasher of the body in a canonical form, shared by all signatures that use
// it.
func (t *Verification) bodyHashFor(simple bool, length int64) *bodyHasher {
	at := slices.IndexFunc(t.bodyHashes, func(b *bodyHasher) bool { return b.isSimple == simple && b.length == length })
	if at < 0 {
		at = len(t.bodyHashes)
		t.bodyHashes = append(t.bodyHashes, newBodyHasher(simple, length))
	}
	return t.bodyHashes[at]
}

// Write hashes the next bytes of the body. It never fails.
func (t *Verification) Write(p []byte) (int, error) {
	for _, b := range t.bodyHashes {
		b.write(p)
	}
	return len(p), nil
}

// Verify runs all checks, concurrently if they need DNS. DNS errors and timeouts are results, too.
func (t *Verification) Verify(ctx context.Context, c ClientIdentity) *Results {
	for _, b := range t.bodyHashes {
		b.finish() // before concurrent use
	}
	limit := t.verifier.Timeout
	if limit <= 0 {
		limit = defaultTimeout
	}
	early, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	late, cancel := context.WithTimeout(ctx, limit+limit/4)
	defer cancel()
	r, out := t.verifier.DNS, &Results{}
	finder := &dmarcFinder{dns: r, lookups: map[string]*dmarcLookup{}}
	for _, author := range t.authors.domains {
		finder.lookup(late, author)
	}
	var all sync.WaitGroup
	check := func(f func(*dns.Resolver)) {
		if !tryCached(r, f) {
			all.Go(func() { f(r) })
		}
	}
	check(func(r *dns.Resolver) { out.IPRev = VerifyIPRev(early, r, c.IP) })
	check(func(r *dns.Resolver) { out.SPF = VerifySPF(early, r, c) })
	if t.arc.Result == "" {
		all.Go(func() { t.verifyARC(early) })
	}
	now := t.verifier.Now()
	for _, d := range t.signatures {
		if d.Result == "" {
			check(func(r *dns.Resolver) { d.Result, d.Reason = t.verifyDKIM(early, r, now, d) })
		}
	}
	all.Wait()
	if out.SPF.check != nil {
		out.SPF.check.dns = r // Explain may make more queries
	}
	out.DKIM, out.ARC = t.signatures, t.arc
	ids := []authIdentifier{{out.SPF.Domain, true, out.SPF.Result}}
	for _, d := range out.DKIM {
		ids = append(ids, authIdentifier{d.Domain, false, d.Result})
	}
	out.DMARC = t.evaluateDMARC(late, finder, ids, t.verifier.TrustedSealers)
	return out
}

// tryCached runs a check with the resolver's cache only, and reports whether the cache was enough.
// Otherwise the check's result is invalid, and the caller must run it again. Most mail comes from
// recently seen senders, and doesn't need goroutines that wait for each other.
func tryCached(r *dns.Resolver, check func(*dns.Resolver)) bool {
	cached, missed := r.CacheOnly()
	check(cached)
	return !missed.Load()
}

// DKIMResult returns the combined result of the signatures: a pass if one passes, else the most
// significant result.
func (j *Results) DKIMResult() Result {
	for _, r := range []Result{Pass, TempError, Fail, PolicyFailure, PermError, Neutral} {
		if slices.ContainsFunc(j.DKIM, func(d *DKIM) bool { return d.Result == r }) {
			return r
		}
	}
	return None
}
