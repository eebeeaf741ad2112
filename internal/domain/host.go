// SPDX-License-Identifier: Apache-2.0

package domain

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	wire "github.com/miekg/dns"
	"golang.org/x/sync/errgroup"

	"github.com/mailstead/mailstead/internal/dns"
	"github.com/mailstead/mailstead/internal/egress"
	"github.com/mailstead/mailstead/internal/mailauth"
)

// Kinds of record that only the service's own names have.
const (
	KindAddress = "ADDRESS"
	KindReverse = "REVERSE"
)

// Host is the service's own name, with the names below it that the records of customers' domains
// refer to. The operator publishes their records.
type Host struct {
	Name     string
	Resolver *dns.Resolver
	// Addrs are the known addresses that mail is sent from.
	Addrs         []netip.Addr
	UsesSmartHost bool         // a smart host relays all mail
	Key           *HostDKIMKey // nil: not generated yet
}

// maxHostAddrs limits the addresses that are checked.
const maxHostAddrs = 16

// Placeholders for values that the service doesn't know.
const (
	addressPlaceholder = "PUBLIC-ADDRESS-OF-THIS-SERVER"
	relayPlaceholder   = "SPF-NAME-OF-THE-RELAY"
)

// LoadHost returns the service's own names. It generates their DKIM key if there is none.
func (d *Domains) LoadHost(ctx context.Context) (*Host, error) {
	key, err := d.HostDKIMKey(ctx)
	return &Host{Name: d.Host, Resolver: d.Resolver, Addrs: d.Addrs, UsesSmartHost: d.UsesSmartHost, Key: key}, err
}

func spfHost(host string) string    { return "spf." + host }
func bounceHost(host string) string { return "bounces." + host }

// expectedRecords lists the records to publish, required records first. found are the addresses of
// the name in the DNS.
func (h *Host) expectedRecords(found []netip.Addr) []Record {
	var required, optional []Record
	add := func(needed bool, kind, typ, name, value, note string) *Record {
		r := Record{Kind: kind, Type: typ, Name: name, Value: value, TTL: recordTTL, Required: needed, Status: RecordPending, Observed: []string{}, Note: note}
		list := &optional
		if needed {
			list = &required
		}
		*list = append(*list, r)
		return &(*list)[len(*list)-1]
	}
	mx := func(needed bool, name, note string) {
		preference := mxPreference
		add(needed, KindMX, "MX", name, h.Name, note).Priority = &preference
	}
	h.addAddressRecords(found, add)
	add(true, KindSPF, "TXT", spfHost(h.Name), h.spfValue(found), "The SPF record of every domain includes it. It lists the addresses that mail leaves from.")
	add(true, KindSPF, "TXT", h.Name, "v=spf1 include:"+spfHost(h.Name)+" -all", "Reports have no return path: receivers check the name of the server instead.")
	mx(true, bounceHost(h.Name), "Bounces of mail from applications and of the service's own mail come back here.")
	add(true, KindSPF, "TXT", bounceHost(h.Name), "v=spf1 include:"+spfHost(h.Name)+" -all", "It is the return path of that mail.")
	if h.Key != nil {
		add(true, KindDKIM, "TXT", h.Key.Selector+"._domainkey."+h.Name, h.Key.Record, "Reports and the service's own mail, such as for a new password, are signed with this key.")
	}
	add(true, KindDMARC, "TXT", "_dmarc."+h.Name, dmarcValue, "Large providers expect a policy of every sender.")
	mx(false, h.Name, "Without it mail to the operator follows the addresses, which a few servers don't do.")
	all := append(required, optional...)
	for i, r := range all {
		if strings.Contains(r.Value, addressPlaceholder) {
			all[i].Note += " Put the server's public address in place of " + addressPlaceholder + "."
		} else if strings.Contains(r.Value, relayPlaceholder) {
			all[i].Note += " Put the name that the relay's provider gives for SPF in place of " + relayPlaceholder + "."
		}
	}
	return all
}

// addAddressRecords adds the address records of the name, and the PTR records of the addresses that
// mail is sent from.
func (h *Host) addAddressRecords(found []netip.Addr, add func(bool, string, string, string, string, string) *Record) {
	const leads = "MX records, mail programs and the dashboard lead here."
	if len(found)+len(h.Addrs) == 0 {
		add(true, KindAddress, "A", h.Name, addressPlaceholder, leads)
	}
	for _, four := range []bool{true, false} {
		typ := map[bool]string{true: "A", false: "AAAA"}[four]
		of := func(a netip.Addr) bool { return a.Is4() == four }
		published := slices.ContainsFunc(found, of)
		for _, a := range h.allAddrs(found) {
			if of(a) && (!published || slices.Contains(found, a)) {
				add(published || len(found) == 0, KindAddress, typ, h.Name, a.String(), leads)
			}
		}
	}
	if h.UsesSmartHost {
		return
	}
	for _, a := range h.allAddrs(found) {
		name, err := wire.ReverseAddr(a.String())
		if err != nil || !egress.IsPublic(a) {
			continue
		}
		ours := len(h.Addrs) == 0 || slices.Contains(h.Addrs, a)
		add(ours, KindReverse, "PTR", strings.TrimSuffix(name, "."), h.Name,
			"Large providers reject mail from "+a.String()+" without it. The provider of the address sets it.")
	}
}

// allAddrs joins the configured addresses with those in the DNS.
func (h *Host) allAddrs(found []netip.Addr) []netip.Addr {
	all := slices.Clone(h.Addrs)
	for _, a := range found {
		if !slices.Contains(all, a) {
			all = append(all, a)
		}
	}
	return all[:min(len(all), maxHostAddrs)]
}

// spfValue returns the SPF record that lists the sending addresses.
func (h *Host) spfValue(found []netip.Addr) string {
	if h.UsesSmartHost {
		return "v=spf1 include:" + relayPlaceholder + " -all"
	}
	text := "v=spf1"
	for _, a := range h.allAddrs(found) {
		if a = a.Unmap(); a.Is4() {
			text += " ip4:" + a.String()
		} else {
			text += " ip6:" + a.WithZone("").String()
		}
	}
	if text == "v=spf1" {
		text += " ip4:" + addressPlaceholder
	}
	return text + " -all"
}

// Check queries the DNS, bypassing the cache, for all records of the service's names.
func (h *Host) Check(ctx context.Context) ([]Record, error) {
	ask, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	resolver := h.Resolver.Uncached()
	found, reached := h.checkAddresses(ask, resolver)
	all := h.expectedRecords(found)
	now := time.Now().UTC()
	group := new(errgroup.Group)
	group.SetLimit(maxConcurrentQueries)
	for i := range all {
		group.Go(func() error {
			r := &all[i]
			v, err := h.checkRecord(ask, resolver, r, found, reached)
			if v.status == RecordTemporaryFailure {
				v = hostNoAnswerResult(r.Name)
			}
			r.Status, r.Error, r.LastCheckedAt = v.status, v.problem, &now
			if seen := printableValues(v.observed); seen != nil {
				r.Observed = seen
			}
			return err
		})
	}
	return all, errors.Join(group.Wait(), ctx.Err())
}

// uncheckedHostCheck is the result for a record if the DNS gives no answer.
func hostNoAnswerResult(name string) recordResult {
	return recordResult{RecordTemporaryFailure, nil, fmt.Sprintf("The name servers for %s gave no usable answer, so this record could not be checked.", name)}
}

// checkAddresses returns the name's publicly reachable addresses in the DNS, and the common result
// for all of them.
func (h *Host) checkAddresses(ctx context.Context, resolver *dns.Resolver) (found []netip.Addr, v recordResult) {
	res, err := resolver.Addrs(ctx, h.Name)
	if errors.Is(err, dns.ErrTemporary) {
		return nil, noAnswerResult(h.Name)
	}
	var hidden, all []string
	for _, a := range res.Records[:min(len(res.Records), maxHostAddrs)] {
		a = a.Unmap()
		all = append(all, a.String())
		if egress.IsPublic(a) || slices.Contains(h.Addrs, a) {
			found = append(found, a)
		} else {
			hidden = append(hidden, a.String())
		}
	}
	if len(hidden) > 0 {
		return found, failedResult(all, "%s leads to %s, which nobody on the Internet can reach. Remove it from the public DNS.", h.Name, strings.Join(hidden, ", "))
	}
	return found, verifiedResult(all)
}

// checkRecord returns the result for one record; reached is the result for the addresses.
func (h *Host) checkRecord(ctx context.Context, resolver *dns.Resolver, r *Record, found []netip.Addr, reached recordResult) (recordResult, error) {
	c := &claim{name: h.Name}
	switch r.Kind {
	case KindAddress:
		published := slices.ContainsFunc(found, func(a netip.Addr) bool { return a.String() == r.Value })
		if reached.status == RecordVerified && !published {
			return failedResult(reached.observed, "No %s record was found at %s. Publish: %s %s %s", r.Type, r.Name, r.Name, r.Type, r.Value), nil
		}
		return reached, nil
	case KindReverse:
		return h.checkReverse(ctx, resolver, r, found), nil
	case KindMX:
		res, err := resolver.MX(ctx, r.Name)
		return resultOrMissing(ctx, resolver, c, r, err, func() recordResult { return verifyMX(h.Name, r, res.Records) }), nil
	case KindSPF:
		return h.checkSPF(ctx, resolver, r, found), nil
	case KindDMARC:
		return checkDMARC(ctx, resolver, c, r), nil
	}
	k := key{algorithm: string(mailauth.RSA), record: r.Value}
	pub, err := k.publicKey()
	if err != nil {
		return recordResult{}, err
	}
	res, err := resolver.TXT(ctx, r.Name)
	return resultOrMissing(ctx, resolver, c, r, err, func() recordResult {
		ok, problem := mailauth.CheckKeyRecord(res.Records, pub)
		return resultOf(res.Records, ok, problem)
	}), nil
}

// checkReverse requires that the reverse name is ours, and that it resolves to the address.
func (h *Host) checkReverse(ctx context.Context, resolver *dns.Resolver, r *Record, found []netip.Addr) recordResult {
	at := slices.IndexFunc(h.allAddrs(found), func(a netip.Addr) bool {
		name, err := wire.ReverseAddr(a.String())
		return err == nil && name == r.Name+"."
	})
	a := h.allAddrs(found)[at]
	res, err := resolver.PTR(ctx, a)
	ask := fmt.Sprintf("Ask the provider of the address to set its reverse name (PTR) to %s.", h.Name)
	switch {
	case errors.Is(err, dns.ErrTemporary):
		return noAnswerResult(r.Name)
	case err != nil:
		return failedResult(nil, "%s has no reverse name. %s", a, ask)
	case !slices.Contains(res.Records, strings.ToLower(h.Name)):
		return failedResult(res.Records, "The reverse name of %s is %s. %s", a, strings.Join(printableValues(res.Records), ", "), ask)
	case !slices.Contains(found, a):
		return failedResult(res.Records, "The reverse name of %s is %s, but that name has no such address. Publish an address record, too: large providers ask for both.", a, h.Name)
	}
	return verifiedResult(res.Records)
}

// checkSPF requires that the record allows the addresses that mail is sent from.
func (h *Host) checkSPF(ctx context.Context, resolver *dns.Resolver, r *Record, found []netip.Addr) recordResult {
	res, err := resolver.TXT(ctx, r.Name)
	if errors.Is(err, dns.ErrTemporary) {
		return noAnswerResult(r.Name)
	}
	if !slices.ContainsFunc(res.Records, func(txt string) bool { return strings.HasPrefix(strings.ToLower(txt)+" ", "v=spf1 ") }) {
		what := "No SPF record was found at " + r.Name
		if r.Name == spfHost(h.Name) {
			what += ", and every domain's SPF record includes it: receivers ignore them all (permanent error)"
		}
		return failedResult(res.Records, "%s. Publish: %s TXT %s", what, r.Name, r.Value)
	}
	in := mailauth.CheckSPFIncludes(ctx, resolver, r.Name, res.Records, "")
	if in.Result == mailauth.TempError {
		return noAnswerResult(r.Name)
	} else if in.Result == mailauth.PermError {
		return failedResult(res.Records, "Receivers ignore the SPF record: %s. Correct it, or publish: %s TXT %s", in.Reason, r.Name, r.Value)
	}
	if h.UsesSmartHost {
		return verifiedResult(res.Records)
	}
	refused, unknown := h.disallowedAddrs(ctx, resolver, r.Name, found)
	switch {
	case unknown:
		return noAnswerResult(r.Name)
	case len(refused) > 0:
		return failedResult(res.Records, "The SPF record does not allow %s, which mail leaves from. Publish: %s TXT %s", strings.Join(refused, ", "), r.Name, r.Value)
	}
	return verifiedResult(res.Records)
}

// disallowedAddrs returns the addresses that a name's SPF record does not allow. If the addresses
// are known only from the DNS, as behind NAT, one allowed address is enough: the others may only
// receive.
func (h *Host) disallowedAddrs(ctx context.Context, resolver *dns.Resolver, name string, found []netip.Addr) (refused []string, unknown bool) {
	addrs := h.Addrs
	if len(addrs) == 0 {
		addrs = found
	}
	for _, a := range addrs[:min(len(addrs), maxHostAddrs)] {
		switch got := mailauth.VerifySPF(ctx, resolver, mailauth.ClientIdentity{IP: a, Helo: h.Name, From: "postmaster@" + name}); got.Result {
		case mailauth.Pass:
			if len(h.Addrs) == 0 {
				return nil, false
			}
		case mailauth.TempError:
			unknown = true
		default:
			refused = append(refused, a.String())
		}
	}
	return refused, unknown
}

// Zone returns records of the service's names as text to paste into a zone file. Unknown values,
// and reverse names, which belong to other zones, are comments.
func (h *Host) Zone(records []Record) string {
	var b strings.Builder
	fmt.Fprintf(&b, "; DNS records of the mail service %s itself.\n", h.Name)
	for _, r := range records {
		line := r.zoneLine(r.TTL)
		if r.Kind == KindReverse || strings.Contains(r.Value, addressPlaceholder) || strings.Contains(r.Value, relayPlaceholder) {
			line = "; " + line
		}
		fmt.Fprintf(&b, "\n; %s\n%s\n", r.Note, line)
	}
	if h.Key == nil {
		b.WriteString("\n; The DKIM key is generated when the service first starts.\n")
	}
	return b.String()
}
