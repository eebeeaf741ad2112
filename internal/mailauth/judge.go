// SPDX-License-Identifier: Apache-2.0

package mailauth

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/mailstead/mailstead/internal/dns"
)

// checkTime is the time that checks have, if Judge does not say otherwise
// (RFC 7208 §4.6.4). DMARC, which waits for the others, has a quarter more.
const checkTime = 20 * time.Second

// Judge finds out who stands behind messages that come by SMTP. It is safe for
// use by many goroutines.
type Judge struct {
	DNS *dns.Resolver
	// Trusted are the domains of forwarders whose ARC seals are believed,
	// A-labels.
	Trusted []string
	Time    time.Duration // for each message's checks, a quarter more for DMARC; 20 s if 0
	Now     func() time.Time

	keys keyCache
}

// Judgement is what was found out.
type Judgement struct {
	IPRev IPRev
	SPF   SPF
	DKIM  []*DKIM // from the top of the header; at most 10
	ARC   ARC
	DMARC DMARC
}

// Trial is a message that is being judged: first its body goes through it,
// then Judge is called. It serves one goroutine.
type Trial struct {
	judge      *Judge
	head       *head
	sums       []*bodySum
	signatures []*DKIM
	sets       []arcSet
	arcContent content
	arc        ARC
	authors    authors
}

// Begin reads a message's header as it came, of at most 1 MiB, which must not
// change afterwards. So that the body is read but once, its hashes are made
// while it is written to the Trial.
func (j *Judge) Begin(header []byte) *Trial {
	t := &Trial{judge: j, head: readHead(header, "from", "dkim-signature", "arc-seal", "arc-message-signature", "arc-authentication-results")}
	t.authors = t.head.authors()
	t.readDKIM()
	t.readARC()
	signed := slices.Clone(t.arcContent.names)
	for _, d := range t.signatures {
		signed = append(signed, d.names...)
	}
	t.head.index(signed)
	t.refuseCut()
	return t
}

// refuseCut refuses the signatures of fields that there are too many of.
func (t *Trial) refuseCut() {
	const why = "the header has too many fields that it signs"
	cut := func(name string) bool { return t.head.cut[name] }
	for _, d := range t.signatures {
		if d.Result == "" && slices.ContainsFunc(d.names, cut) {
			d.Result, d.Reason = PermError, why
		}
	}
	if t.arc.Result == "" && slices.ContainsFunc(t.arcContent.names, cut) {
		t.arc.Result, t.arc.Reason = Fail, why
	}
}

// sum returns the hash of the body in a form, the same for all who want it.
func (t *Trial) sum(simple bool, length int64) *bodySum {
	at := slices.IndexFunc(t.sums, func(b *bodySum) bool { return b.simple == simple && b.length == length })
	if at < 0 {
		at = len(t.sums)
		t.sums = append(t.sums, newBodySum(simple, length))
	}
	return t.sums[at]
}

// Write takes the next bytes of the body. It never fails.
func (t *Trial) Write(p []byte) (int, error) {
	for _, b := range t.sums {
		b.write(p)
	}
	return len(p), nil
}

// Judge carries out all checks, side by side where the DNS has to be asked. DNS
// trouble, and the end of the time there is, are results like others.
func (t *Trial) Judge(ctx context.Context, c Client) *Judgement {
	for _, b := range t.sums {
		b.finish() // before several look at it
	}
	limit := t.judge.Time
	if limit <= 0 {
		limit = checkTime
	}
	early, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	late, cancel := context.WithTimeout(ctx, limit+limit/4)
	defer cancel()
	r, out := t.judge.DNS, &Judgement{}
	finder := &dmarcFinder{dns: r, got: map[string]*dmarcAnswer{}}
	for _, author := range t.authors.domains {
		finder.ask(late, author)
	}
	var all sync.WaitGroup
	check := func(f func(*dns.Resolver)) {
		if !atOnce(r, f) {
			all.Go(func() { f(r) })
		}
	}
	check(func(r *dns.Resolver) { out.IPRev = JudgeIP(early, r, c.IP) })
	check(func(r *dns.Resolver) { out.SPF = JudgeSPF(early, r, c) })
	if t.arc.Result == "" {
		all.Go(func() { t.verifyARC(early) })
	}
	now := t.judge.Now()
	for _, d := range t.signatures {
		if d.Result == "" {
			check(func(r *dns.Resolver) { d.Result, d.Reason = t.verify(early, r, now, d) })
		}
	}
	all.Wait()
	if out.SPF.check != nil {
		out.SPF.check.dns = r // Explain may ask for more
	}
	out.DKIM, out.ARC = t.signatures, t.arc
	ids := []proven{{out.SPF.Domain, true, out.SPF.Result}}
	for _, d := range out.DKIM {
		ids = append(ids, proven{d.Domain, false, d.Result})
	}
	out.DMARC = t.judgeDMARC(late, finder, ids, t.judge.Trusted)
	return out
}

// atOnce carries a check out with what is in the resolver's cache, and reports
// whether that was all it needed: else its result means nothing, and it is to be
// carried out again. Most mail is from those who wrote a moment ago, and does not
// need goroutines that wait for each other.
func atOnce(r *dns.Resolver, check func(*dns.Resolver)) bool {
	cached, missed := r.Cached()
	check(cached)
	return !missed.Load()
}

// Signed is what the signatures are worth together: a pass if one passes, else
// what says most.
func (j *Judgement) Signed() Result {
	for _, r := range []Result{Pass, TempError, Fail, PolicyBad, PermError, Neutral} {
		if slices.ContainsFunc(j.DKIM, func(d *DKIM) bool { return d.Result == r }) {
			return r
		}
	}
	return None
}
