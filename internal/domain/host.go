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

// The kinds of record that only the service's own names have.
const (
	Address = "ADDRESS"
	Reverse = "REVERSE"
)

// Host is the service's own name with those below it that the records of
// customers' domains lead to. Its operator publishes their records.
type Host struct {
	Name     string
	Resolver *dns.Resolver
	// Addrs are the addresses that mail leaves from, as far as they are known.
	Addrs   []netip.Addr
	Relayed bool     // a smart host sends all mail
	Key     *HostKey // nil: none was generated yet
}

// maxHostAddrs bounds the addresses that are looked at.
const maxHostAddrs = 16

// Values for what the service cannot know.
const (
	unknownAddress = "PUBLIC-ADDRESS-OF-THIS-SERVER"
	unknownRelay   = "SPF-NAME-OF-THE-RELAY"
)

// HostNames returns the service's own names, and generates their DKIM key if there
// is none.
func (d *Domains) HostNames(ctx context.Context) (*Host, error) {
	key, err := d.HostKey(ctx)
	return &Host{Name: d.Host, Resolver: d.Resolver, Addrs: d.Addrs, Relayed: d.Relayed, Key: key}, err
}

func spfOf(host string) string     { return "spf." + host }
func bouncesOf(host string) string { return "bounces." + host }

// records lists what is to be published, required records first. found are the
// addresses that the name has in the DNS.
func (h *Host) records(found []netip.Addr) []Record {
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
		add(needed, MX, "MX", name, h.Name, note).Priority = &preference
	}
	h.addAddresses(found, add)
	add(true, SPF, "TXT", spfOf(h.Name), h.spf(found), "The SPF record of every domain includes it. It lists the addresses that mail leaves from.")
	add(true, SPF, "TXT", h.Name, "v=spf1 include:"+spfOf(h.Name)+" -all", "Reports have no return path: receivers check the name of the server instead.")
	mx(true, bouncesOf(h.Name), "Bounces of mail from applications and of the service's own mail come back here.")
	add(true, SPF, "TXT", bouncesOf(h.Name), "v=spf1 include:"+spfOf(h.Name)+" -all", "It is the return path of that mail.")
	if h.Key != nil {
		add(true, DKIM, "TXT", h.Key.Selector+"._domainkey."+h.Name, h.Key.Record, "Reports and the service's own mail, such as for a new password, are signed with this key.")
	}
	add(true, DMARC, "TXT", "_dmarc."+h.Name, dmarcValue, "Large providers expect a policy of every sender.")
	mx(false, h.Name, "Without it mail to the operator follows the addresses, which a few servers don't do.")
	all := append(required, optional...)
	for i, r := range all {
		if strings.Contains(r.Value, unknownAddress) {
			all[i].Note += " Put the server's public address in place of " + unknownAddress + "."
		} else if strings.Contains(r.Value, unknownRelay) {
			all[i].Note += " Put the name that the relay's provider gives for SPF in place of " + unknownRelay + "."
		}
	}
	return all
}

// addAddresses adds the addresses of the name, and the reverse names of those
// that mail leaves from.
func (h *Host) addAddresses(found []netip.Addr, add func(bool, string, string, string, string, string) *Record) {
	const leads = "MX records, mail programs and the dashboard lead here."
	if len(found)+len(h.Addrs) == 0 {
		add(true, Address, "A", h.Name, unknownAddress, leads)
	}
	for _, four := range []bool{true, false} {
		typ := map[bool]string{true: "A", false: "AAAA"}[four]
		of := func(a netip.Addr) bool { return a.Is4() == four }
		published := slices.ContainsFunc(found, of)
		for _, a := range h.both(found) {
			if of(a) && (!published || slices.Contains(found, a)) {
				add(published || len(found) == 0, Address, typ, h.Name, a.String(), leads)
			}
		}
	}
	if h.Relayed {
		return
	}
	for _, a := range h.both(found) {
		name, err := wire.ReverseAddr(a.String())
		if err != nil || !egress.Public(a) {
			continue
		}
		ours := len(h.Addrs) == 0 || slices.Contains(h.Addrs, a)
		add(ours, Reverse, "PTR", strings.TrimSuffix(name, "."), h.Name,
			"Large providers reject mail from "+a.String()+" without it. The provider of the address sets it.")
	}
}

// both joins the addresses that are known here with those in the DNS.
func (h *Host) both(found []netip.Addr) []netip.Addr {
	all := slices.Clone(h.Addrs)
	for _, a := range found {
		if !slices.Contains(all, a) {
			all = append(all, a)
		}
	}
	return all[:min(len(all), maxHostAddrs)]
}

// spf is the record that lists the senders.
func (h *Host) spf(found []netip.Addr) string {
	if h.Relayed {
		return "v=spf1 include:" + unknownRelay + " -all"
	}
	text := "v=spf1"
	for _, a := range h.both(found) {
		if a = a.Unmap(); a.Is4() {
			text += " ip4:" + a.String()
		} else {
			text += " ip6:" + a.WithZone("").String()
		}
	}
	if text == "v=spf1" {
		text += " ip4:" + unknownAddress
	}
	return text + " -all"
}

// Check asks the DNS, never the cache, for all records of the service's names.
func (h *Host) Check(ctx context.Context) ([]Record, error) {
	ask, cancel := context.WithTimeout(ctx, lookFor)
	defer cancel()
	resolver := h.Resolver.Fresh()
	found, reached := h.lookAddresses(ask, resolver)
	all := h.records(found)
	now := time.Now().UTC()
	group := new(errgroup.Group)
	group.SetLimit(lookAtOnce)
	for i := range all {
		group.Go(func() error {
			r := &all[i]
			v, err := h.look(ask, resolver, r, found, reached)
			if v.status == TemporaryFailure {
				v = unchecked(r.Name)
			}
			r.Status, r.Error, r.LastCheckedAt = v.status, v.problem, &now
			if seen := shown(v.observed); seen != nil {
				r.Observed = seen
			}
			return err
		})
	}
	return all, errors.Join(group.Wait(), ctx.Err())
}

// unchecked is the verdict on a record while the DNS gives no answer about it.
func unchecked(name string) verdict {
	return verdict{TemporaryFailure, nil, fmt.Sprintf("The name servers for %s gave no usable answer, so this record could not be checked.", name)}
}

// lookAddresses returns the addresses of the name in the DNS at which others reach
// it, and the verdict on all of them.
func (h *Host) lookAddresses(ctx context.Context, resolver *dns.Resolver) (found []netip.Addr, v verdict) {
	res, err := resolver.Addrs(ctx, h.Name)
	if errors.Is(err, dns.ErrTemporary) {
		return nil, noAnswer(h.Name)
	}
	var hidden, all []string
	for _, a := range res.Records[:min(len(res.Records), maxHostAddrs)] {
		a = a.Unmap()
		all = append(all, a.String())
		if egress.Public(a) || slices.Contains(h.Addrs, a) {
			found = append(found, a)
		} else {
			hidden = append(hidden, a.String())
		}
	}
	if len(hidden) > 0 {
		return found, failed(all, "%s leads to %s, which nobody on the Internet can reach. Remove it from the public DNS.", h.Name, strings.Join(hidden, ", "))
	}
	return found, verdict{RecordVerified, all, ""}
}

// look gives the verdict on one record; reached is that on the addresses.
func (h *Host) look(ctx context.Context, resolver *dns.Resolver, r *Record, found []netip.Addr, reached verdict) (verdict, error) {
	c := &claim{name: h.Name}
	switch r.Kind {
	case Address:
		published := slices.ContainsFunc(found, func(a netip.Addr) bool { return a.String() == r.Value })
		if reached.status == RecordVerified && !published {
			return failed(reached.observed, "No %s record was found at %s. Publish: %s %s %s", r.Type, r.Name, r.Name, r.Type, r.Value), nil
		}
		return reached, nil
	case Reverse:
		return h.lookReverse(ctx, resolver, r, found), nil
	case MX:
		res, err := resolver.MX(ctx, r.Name)
		return orMissing(ctx, resolver, c, r, err, func() verdict { return judgeMX(h.Name, r, res.Records) }), nil
	case SPF:
		return h.lookSPF(ctx, resolver, r, found), nil
	case DMARC:
		return lookDMARC(ctx, resolver, c, r), nil
	}
	k := key{algorithm: string(mailauth.RSA), record: r.Value}
	pub, err := k.publicKey()
	if err != nil {
		return verdict{}, err
	}
	res, err := resolver.TXT(ctx, r.Name)
	return orMissing(ctx, resolver, c, r, err, func() verdict {
		if ok, problem := mailauth.CheckKeyRecord(res.Records, pub); !ok {
			return failed(res.Records, "%s", problem)
		}
		return verdict{RecordVerified, res.Records, ""}
	}), nil
}

// lookReverse wants the reverse name to be ours, and to lead back to the address.
func (h *Host) lookReverse(ctx context.Context, resolver *dns.Resolver, r *Record, found []netip.Addr) verdict {
	at := slices.IndexFunc(h.both(found), func(a netip.Addr) bool {
		name, err := wire.ReverseAddr(a.String())
		return err == nil && name == r.Name+"."
	})
	a := h.both(found)[at]
	res, err := resolver.PTR(ctx, a)
	ask := fmt.Sprintf("Ask the provider of the address to set its reverse name (PTR) to %s.", h.Name)
	switch {
	case errors.Is(err, dns.ErrTemporary):
		return noAnswer(r.Name)
	case err != nil:
		return failed(nil, "%s has no reverse name. %s", a, ask)
	case !slices.Contains(res.Records, strings.ToLower(h.Name)):
		return failed(res.Records, "The reverse name of %s is %s. %s", a, strings.Join(shown(res.Records), ", "), ask)
	case !slices.Contains(found, a):
		return failed(res.Records, "The reverse name of %s is %s, but that name has no such address. Publish an address record, too: large providers ask for both.", a, h.Name)
	}
	return verdict{RecordVerified, res.Records, ""}
}

// lookSPF wants the record to allow the addresses that mail leaves from.
func (h *Host) lookSPF(ctx context.Context, resolver *dns.Resolver, r *Record, found []netip.Addr) verdict {
	res, err := resolver.TXT(ctx, r.Name)
	if errors.Is(err, dns.ErrTemporary) {
		return noAnswer(r.Name)
	}
	if !slices.ContainsFunc(res.Records, func(txt string) bool { return strings.HasPrefix(strings.ToLower(txt)+" ", "v=spf1 ") }) {
		what := "No SPF record was found at " + r.Name
		if r.Name == spfOf(h.Name) {
			what += ", and every domain's SPF record includes it: receivers ignore them all (permanent error)"
		}
		return failed(res.Records, "%s. Publish: %s TXT %s", what, r.Name, r.Value)
	}
	in := mailauth.CheckIncludes(ctx, resolver, r.Name, res.Records, "")
	if in.Result == mailauth.TempError {
		return noAnswer(r.Name)
	} else if in.Result == mailauth.PermError {
		return failed(res.Records, "Receivers ignore the SPF record: %s. Correct it, or publish: %s TXT %s", in.Reason, r.Name, r.Value)
	}
	if h.Relayed {
		return verdict{RecordVerified, res.Records, ""}
	}
	refused, unknown := h.senders(ctx, resolver, r.Name, found)
	switch {
	case unknown:
		return noAnswer(r.Name)
	case len(refused) > 0:
		return failed(res.Records, "The SPF record does not allow %s, which mail leaves from. Publish: %s TXT %s", strings.Join(refused, ", "), r.Name, r.Value)
	}
	return verdict{RecordVerified, res.Records, ""}
}

// senders returns the addresses that a name's SPF record does not allow. Where
// only the DNS tells of addresses, as behind NAT, one that is allowed will do:
// others may only receive.
func (h *Host) senders(ctx context.Context, resolver *dns.Resolver, name string, found []netip.Addr) (refused []string, unknown bool) {
	addrs := h.Addrs
	if len(addrs) == 0 {
		addrs = found
	}
	for _, a := range addrs[:min(len(addrs), maxHostAddrs)] {
		switch got := mailauth.JudgeSPF(ctx, resolver, mailauth.Client{IP: a, Helo: h.Name, From: "postmaster@" + name}); got.Result {
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

// Zone returns records of the service's names as text to paste into a zone file. What
// is not known, and reverse names, which stand in other zones, are comments.
func (h *Host) Zone(records []Record) string {
	var b strings.Builder
	fmt.Fprintf(&b, "; DNS records of the mail service %s itself.\n", h.Name)
	for _, r := range records {
		line := r.line(r.TTL)
		if r.Kind == Reverse || strings.Contains(r.Value, unknownAddress) || strings.Contains(r.Value, unknownRelay) {
			line = "; " + line
		}
		fmt.Fprintf(&b, "\n; %s\n%s\n", r.Note, line)
	}
	if h.Key == nil {
		b.WriteString("\n; The DKIM key is generated when the service first starts.\n")
	}
	return b.String()
}
