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

// Limits of one DNS check of a domain.
const (
	checkTimeout         = 20 * time.Second
	maxConcurrentQueries = 8    // concurrent DNS queries
	maxObserved          = 16   // values stored per record
	maxObservedValue     = 1024 // octets of each
	maxTXTRecords        = 64   // TXT records read at a name that should have one of ours
	maxParentDomains     = 8    // parent names whose DMARC policies are queried
)

// dnsSnapshot is the content of the DNS for a domain at one time.
type dnsSnapshot struct {
	at           time.Time
	observations observations
	// tokens are those found in OWNERSHIP records; nil if there was no answer.
	tokens map[string]bool
}

// recordResult is the result of checking one answer.
type recordResult struct {
	status   string
	observed []string
	problem  string
}

func failedResult(observed []string, format string, args ...any) recordResult {
	return recordResult{RecordFailed, observed, fmt.Sprintf(format, args...)}
}

func verifiedResult(observed []string) recordResult {
	return recordResult{RecordVerified, observed, ""}
}

func resultOf(observed []string, ok bool, problem string) recordResult {
	if ok {
		return verifiedResult(observed)
	}
	return failedResult(observed, "%s", problem)
}

// checkRecords queries the DNS, bypassing the cache, for all records of a domain, or for those of
// one kind.
func (d *Domains) checkRecords(ctx context.Context, c *claim, keys []key, kind string) (dnsSnapshot, error) {
	ask, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	l := dnsSnapshot{at: d.Now().UTC().Truncate(time.Microsecond), observations: observations{}}
	resolver := d.Resolver.Uncached()
	records := d.expectedRecords(c, keys)
	results := make([]recordResult, len(records))
	group := new(errgroup.Group)
	group.SetLimit(maxConcurrentQueries)
	for i, r := range records {
		if kind != "" && r.Kind != kind {
			continue
		}
		group.Go(func() error {
			if r.Kind == KindOwnership {
				results[i], l.tokens = checkOwnership(ask, resolver, c, &r)
				return nil
			}
			var err error
			results[i], err = d.checkRecord(ask, resolver, c, keys, &r)
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return l, err
	}
	if err := ctx.Err(); err != nil {
		return l, err // answers are missing because the caller cancelled
	}
	for i, r := range records {
		if v := results[i]; v.status != "" {
			l.observations[r.key()] = observation{Expected: r.Value, Status: v.status, Observed: printableValues(v.observed), Error: v.problem, At: l.at}
		}
	}
	return l, nil
}

func (d *Domains) checkRecord(ctx context.Context, resolver *dns.Resolver, c *claim, keys []key, r *Record) (recordResult, error) {
	switch r.Type {
	case "MX":
		res, err := resolver.MX(ctx, r.Name)
		return resultOrMissing(ctx, resolver, c, r, err, func() recordResult { return verifyMX(d.Host, r, res.Records) }), nil
	case "CNAME":
		res, err := resolver.CNAME(ctx, r.Name)
		return resultOrMissing(ctx, resolver, c, r, err, func() recordResult { return verifyCNAME(r, res.Records) }), nil
	case "SRV":
		res, err := resolver.SRV(ctx, r.Name)
		return resultOrMissing(ctx, resolver, c, r, err, func() recordResult { return verifySRV(r, res.Records) }), nil
	}
	switch r.Kind {
	case KindDMARC:
		return checkDMARC(ctx, resolver, c, r), nil
	case KindSPF:
		return d.checkSPF(ctx, resolver, c, r), nil
	}
	verify, err := d.txtVerifier(r, keys)
	if err != nil {
		return recordResult{}, err
	}
	res, err := resolver.TXT(ctx, r.Name)
	return resultOrMissing(ctx, resolver, c, r, err, func() recordResult {
		ok, problem := verify(res.Records)
		return resultOf(res.Records, ok, problem)
	}), nil
}

// checkDMARC also checks the parent names, up to the registered domain. Their policies apply to
// subdomains without a policy (RFC 7489 §6.6.3).
func checkDMARC(ctx context.Context, resolver *dns.Resolver, c *claim, r *Record) recordResult {
	at := c.name
	for n := 0; n < maxParentDomains && !address.IsPublicSuffix(at); n++ {
		res, err := resolver.TXT(ctx, "_dmarc."+at)
		if err == nil {
			if ok, problem := mailauth.CheckDMARCRecord(res.Records); ok || at == c.name {
				return resultOf(res.Records, ok, problem)
			}
		} else if errors.Is(err, dns.ErrTemporary) {
			return noAnswerResult("_dmarc." + at)
		}
		_, at, _ = strings.Cut(at, ".")
	}
	return missingResult(ctx, resolver, c, r, dns.ErrNotFound)
}

// checkSPF also evaluates the record's includes: one name without a record is a permanent error of
// the whole (RFC 7208 §5.2).
func (d *Domains) checkSPF(ctx context.Context, resolver *dns.Resolver, c *claim, r *Record) recordResult {
	res, err := resolver.TXT(ctx, r.Name)
	return resultOrMissing(ctx, resolver, c, r, err, func() recordResult {
		if ok, problem := mailauth.CheckSPFRecord(res.Records, d.spfName()); !ok {
			return failedResult(res.Records, "%s", problem)
		}
		in := mailauth.CheckSPFIncludes(ctx, resolver, r.Name, res.Records, d.spfName())
		switch {
		case in.Result == mailauth.TempError && !in.AfterInclude:
			return recordResult{RecordTemporaryFailure, nil, fmt.Sprintf(
				"The SPF record could not be evaluated: %s. What was found before stands; we will ask again.", in.Reason)}
		case in.Result == mailauth.PermError && in.InInclude:
			return failedResult(res.Records, "The SPF record is right, but receivers ignore it: %s. "+
				"Only the operator of this service can correct that: tell them that include:%s fails.", in.Reason, d.spfName())
		case in.Result == mailauth.PermError && in.AfterInclude:
			return recordResult{RecordVerified, res.Records, fmt.Sprintf(
				"Mail from our servers passes. For other senders receivers ignore the SPF record: %s. Correct or remove that part.", in.Reason)}
		case in.Result == mailauth.PermError:
			return failedResult(res.Records, "Receivers ignore the SPF record: %s. Correct or remove that part.", in.Reason)
		}
		return verifiedResult(res.Records)
	})
}

func noAnswerResult(name string) recordResult {
	return recordResult{RecordTemporaryFailure, nil, fmt.Sprintf(
		"The name servers for %s gave no usable answer. What was found before stands; we will ask again.", name)}
}

// txtVerifier returns the function that verifies the TXT records at r's name.
func (d *Domains) txtVerifier(r *Record, keys []key) (func([]string) (bool, string), error) {
	switch r.Kind {
	case KindMTASTS:
		return verifyMTASTS, nil
	case KindTLSRPT:
		return verifyTLSRPT, nil
	}
	for _, k := range keys {
		if k.record == r.Value {
			pub, err := k.publicKey()
			return func(txts []string) (bool, string) { return mailauth.CheckKeyRecord(txts, pub) }, err
		}
	}
	return nil, fmt.Errorf("a record of kind %s has no verifier", r.Kind)
}

// resultOrMissing returns the result of verify if there are records, and else its own result for a
// missing record or a missing answer.
func resultOrMissing(ctx context.Context, resolver *dns.Resolver, c *claim, r *Record, err error, verify func() recordResult) recordResult {
	switch {
	case err == nil:
		return verify()
	case errors.Is(err, dns.ErrTemporary):
		return noAnswerResult(r.Name)
	}
	return missingResult(ctx, resolver, c, r, err)
}

// missingResult says what to do about a missing record.
func missingResult(ctx context.Context, resolver *dns.Resolver, c *claim, r *Record, err error) recordResult {
	switch {
	case r.Name == c.name && errors.Is(err, dns.ErrNotFound):
		return failedResult(nil, "The name %s does not exist in the DNS. Check that it is registered and that its name servers are set.", c.name)
	case r.Kind == KindSPF:
		_, problem := mailauth.CheckSPFRecord(nil, strings.TrimPrefix(strings.Fields(r.Value)[1], "include:"))
		return failedResult(nil, "%s", problem)
	}
	// Many providers' forms append the domain to the entered name.
	label := strings.TrimSuffix(r.Name, "."+c.name)
	if r.Name != c.name && r.Required {
		if _, err := resolver.TXT(ctx, r.Name+"."+c.name); err == nil {
			return failedResult(nil, "The record is at %s.%s: your DNS provider adds the domain by itself. Enter the name as %s only.", r.Name, c.name, label)
		}
	}
	return failedResult(nil, "No %s record was found at %s. Publish: %s %s %s", r.Type, r.Name, r.Name, r.Type, r.displayValue())
}

// displayValue returns the value with its priority, without a zone file's quotes.
func (r *Record) displayValue() string {
	if r.Priority != nil {
		return fmt.Sprintf("%d %s", *r.Priority, r.Value)
	}
	return r.Value
}

// printableValues limits the stored DNS values and makes them printable.
func printableValues(values []string) []string {
	var out []string
	for _, v := range values[:min(len(values), maxObserved)] {
		if len(v) > maxObservedValue {
			v = v[:maxObservedValue] + "…"
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
