// SPDX-License-Identifier: Apache-2.0

package domain

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/mailstead/mailstead/internal/address"
	"github.com/mailstead/mailstead/internal/dns"
	"github.com/mailstead/mailstead/internal/mailauth"
)

// Limits of one look at a domain.
const (
	lookFor     = 20 * time.Second
	lookAtOnce  = 8    // questions
	maxObserved = 16   // values kept per record
	maxValue    = 1024 // octets of each
	maxPolicies = 64   // TXT records read where only one of ours should be
	maxAbove    = 8    // names whose DMARC policies are asked for
)

// look is what the DNS says about a domain at one time.
type look struct {
	at   time.Time
	seen sightings
	// tokens are those found in OWNERSHIP records, nil if there was no answer.
	tokens map[string]bool
}

// verdict is what one answer is worth.
type verdict struct {
	status   string
	observed []string
	problem  string
}

func failed(observed []string, format string, args ...any) verdict {
	return verdict{RecordFailed, observed, fmt.Sprintf(format, args...)}
}

// lookAt asks the DNS, never the cache, for all records of a domain, or for
// those of one kind.
func (d *Domains) lookAt(ctx context.Context, c *claim, keys []key, kind string) (look, error) {
	ask, cancel := context.WithTimeout(ctx, lookFor)
	defer cancel()
	l := look{at: d.Now().UTC().Truncate(time.Microsecond), seen: sightings{}}
	resolver := d.Resolver.Fresh()
	records := d.asked(c, keys)
	verdicts := make([]verdict, len(records))
	group := new(errgroup.Group)
	group.SetLimit(lookAtOnce)
	for i, r := range records {
		if kind != "" && r.Kind != kind {
			continue
		}
		group.Go(func() error {
			if r.Kind == Ownership {
				verdicts[i], l.tokens = lookOwnership(ask, resolver, c, &r)
				return nil
			}
			var err error
			verdicts[i], err = d.lookRecord(ask, resolver, c, keys, &r)
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return l, err
	}
	if err := ctx.Err(); err != nil {
		return l, err // the answers are missing because the asker left
	}
	for i, r := range records {
		if v := verdicts[i]; v.status != "" {
			l.seen[r.place()] = sighting{Asked: r.Value, Status: v.status, Observed: shown(v.observed), Error: v.problem, At: l.at}
		}
	}
	return l, nil
}

func (d *Domains) lookRecord(ctx context.Context, resolver *dns.Resolver, c *claim, keys []key, r *Record) (verdict, error) {
	switch r.Type {
	case "MX":
		res, err := resolver.MX(ctx, r.Name)
		return orMissing(ctx, resolver, c, r, err, func() verdict { return judgeMX(d.Host, r, res.Records) }), nil
	case "CNAME":
		res, err := resolver.CNAME(ctx, r.Name)
		return orMissing(ctx, resolver, c, r, err, func() verdict { return judgeCNAME(r, res.Records) }), nil
	case "SRV":
		res, err := resolver.SRV(ctx, r.Name)
		return orMissing(ctx, resolver, c, r, err, func() verdict { return judgeSRV(r, res.Records) }), nil
	}
	switch r.Kind {
	case DMARC:
		return lookDMARC(ctx, resolver, c, r), nil
	case SPF:
		return d.lookSPF(ctx, resolver, c, r), nil
	}
	judge, err := d.judgeOf(r, keys)
	if err != nil {
		return verdict{}, err
	}
	res, err := resolver.TXT(ctx, r.Name)
	return orMissing(ctx, resolver, c, r, err, func() verdict {
		ok, problem := judge(res.Records)
		if ok {
			return verdict{RecordVerified, res.Records, ""}
		}
		return failed(res.Records, "%s", problem)
	}), nil
}

// lookDMARC also looks at the names above, up to the registered one, whose
// policies hold for those below that have none (RFC 7489 §6.6.3).
func lookDMARC(ctx context.Context, resolver *dns.Resolver, c *claim, r *Record) verdict {
	at := c.name
	for n := 0; n < maxAbove && !address.PublicSuffix(at); n++ {
		res, err := resolver.TXT(ctx, "_dmarc."+at)
		if err == nil {
			ok, problem := mailauth.CheckDMARC(res.Records)
			switch {
			case ok:
				return verdict{RecordVerified, res.Records, ""}
			case at == c.name:
				return failed(res.Records, "%s", problem)
			}
		} else if errors.Is(err, dns.ErrTemporary) {
			return noAnswer("_dmarc." + at)
		}
		_, at, _ = strings.Cut(at, ".")
	}
	return missing(ctx, resolver, c, r, dns.ErrNotFound)
}

// lookSPF also evaluates what the record includes: one name without a record is
// a permanent error of the whole (RFC 7208 §5.2).
func (d *Domains) lookSPF(ctx context.Context, resolver *dns.Resolver, c *claim, r *Record) verdict {
	res, err := resolver.TXT(ctx, r.Name)
	return orMissing(ctx, resolver, c, r, err, func() verdict {
		if ok, problem := mailauth.CheckSPF(res.Records, d.spfName()); !ok {
			return failed(res.Records, "%s", problem)
		}
		in := mailauth.CheckIncludes(ctx, resolver, r.Name, res.Records, d.spfName())
		switch {
		case in.Result == mailauth.TempError && !in.After:
			return verdict{TemporaryFailure, nil, fmt.Sprintf(
				"The SPF record could not be evaluated: %s. What was found before stands; we will ask again.", in.Reason)}
		case in.Result == mailauth.PermError && in.Inside:
			return failed(res.Records, "The SPF record is right, but receivers ignore it: %s. "+
				"Only the operator of this service can correct that: tell them that include:%s fails.", in.Reason, d.spfName())
		case in.Result == mailauth.PermError && in.After:
			return verdict{RecordVerified, res.Records, fmt.Sprintf(
				"Mail from our servers passes. For other senders receivers ignore the SPF record: %s. Correct or remove that part.", in.Reason)}
		case in.Result == mailauth.PermError:
			return failed(res.Records, "Receivers ignore the SPF record: %s. Correct or remove that part.", in.Reason)
		}
		return verdict{RecordVerified, res.Records, ""}
	})
}

func noAnswer(name string) verdict {
	return verdict{TemporaryFailure, nil, fmt.Sprintf(
		"The name servers for %s gave no usable answer. What was found before stands; we will ask again.", name)}
}

// judgeOf returns what judges the TXT records at r's name.
func (d *Domains) judgeOf(r *Record, keys []key) (func([]string) (bool, string), error) {
	switch r.Kind {
	case MTASTS:
		return checkMTASTS, nil
	case TLSRPT:
		return checkTLSRPT, nil
	}
	for _, k := range keys {
		if k.record == r.Value {
			pub, err := k.publicKey()
			return func(txts []string) (bool, string) { return mailauth.CheckKeyRecord(txts, pub) }, err
		}
	}
	return nil, fmt.Errorf("a record of kind %s has no judge", r.Kind)
}

// orMissing gives the verdict on an answer with records, and itself speaks
// about one without and about no answer.
func orMissing(ctx context.Context, resolver *dns.Resolver, c *claim, r *Record, err error, judge func() verdict) verdict {
	switch {
	case err == nil:
		return judge()
	case errors.Is(err, dns.ErrTemporary):
		return noAnswer(r.Name)
	}
	return missing(ctx, resolver, c, r, err)
}

// missing says what to do about a record that is not there.
func missing(ctx context.Context, resolver *dns.Resolver, c *claim, r *Record, err error) verdict {
	switch {
	case r.Name == c.name && errors.Is(err, dns.ErrNotFound):
		return failed(nil, "The name %s does not exist in the DNS. Check that it is registered and that its name servers are set.", c.name)
	case r.Kind == SPF:
		_, problem := mailauth.CheckSPF(nil, strings.TrimPrefix(strings.Fields(r.Value)[1], "include:"))
		return failed(nil, "%s", problem)
	}
	// Many providers' forms append the domain to what is typed in.
	label := strings.TrimSuffix(r.Name, "."+c.name)
	if r.Name != c.name && r.Required {
		if _, err := resolver.TXT(ctx, r.Name+"."+c.name); err == nil {
			return failed(nil, "The record is at %s.%s: your DNS provider adds the domain by itself. Enter the name as %s only.", r.Name, c.name, label)
		}
	}
	return failed(nil, "No %s record was found at %s. Publish: %s %s %s", r.Type, r.Name, r.Name, r.Type, r.plainValue())
}

// plainValue is the value with its priority, without a zone file's quotes.
func (r *Record) plainValue() string {
	if r.Priority != nil {
		return fmt.Sprintf("%d %s", *r.Priority, r.Value)
	}
	return r.Value
}

// shown bounds what is kept of what the DNS says, and makes it printable.
func shown(values []string) []string {
	var out []string
	for _, v := range values[:min(len(values), maxObserved)] {
		if len(v) > maxValue {
			v = v[:maxValue] + "…"
		}
		out = append(out, strings.Map(func(r rune) rune {
			if r < ' ' || r == 0x7f {
				return '\uFFFD'
			}
			return r
		}, strings.ToValidUTF8(v, "\uFFFD")))
	}
	return out
}
