// SPDX-License-Identifier: Apache-2.0

package domain

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/dns"
)

// Zone returns the records that a domain should publish as text to paste into a zone file (RFC 1035
// §5).
func (d *Domains) Zone(ctx context.Context, account, id db.ID) (string, error) {
	dom, err := d.Get(ctx, account, id)
	if err != nil {
		return "", err
	}
	var b strings.Builder
	fmt.Fprintf(&b, "; DNS records of %s for its mail at %s.\n\n; Required.\n", dom.Name, d.Host)
	required := true
	for _, r := range dom.Records {
		if r.Note != "" {
			b.WriteString("; " + r.Note + "\n")
		} else if required && !r.Required {
			required = false
			b.WriteString("\n; Recommended: mail programs find their settings, and others' servers encrypt.\n")
		}
		if r.Kind == KindSPF {
			fmt.Fprintf(&b, "; One SPF record only: if there is one already, add include:%s to it instead.\n", d.spfName())
		}
		b.WriteString(r.zoneLine(r.TTL) + "\n")
	}
	return b.String(), nil
}

// zoneLine returns a record in zone-file format.
func (r *Record) zoneLine(ttl int) string {
	return fmt.Sprintf("%s. %d IN %s %s", r.Name, ttl, r.Type, r.rdata())
}

// sandboxTTL is short, so that a change in the sandbox is visible immediately.
const sandboxTTL = 1

// maxRecordLabels is the maximum number of labels of a record below its domain: a DKIM key with a
// selector of several labels has the most.
const maxRecordLabels = 1 + maxSelectorLabels

// ZoneRecords implements dns.Source. It returns all records that any domain here should publish,
// and the records of the service's own names. The sandbox zone answers with it, so that names under
// reserved top-level domains are verified by the same code as all others.
func (d *Domains) ZoneRecords(ctx context.Context, name string) (dns.NameData, error) {
	name = strings.TrimSuffix(strings.ToLower(name), ".")
	all, err := d.hostRecords(ctx, name)
	if err != nil {
		return dns.NameData{}, err
	}
	for of, n := name, 0; of != "" && n <= maxRecordLabels; n++ {
		claims, err := db.All(ctx, d.DB, claimsByNameQuery.With(of), scanClaim)
		if err != nil {
			return dns.NameData{}, err
		}
		for _, c := range claims {
			keys, err := db.All(ctx, d.DB, domainKeysQuery.With(c.id), scanKey)
			if err != nil {
				return dns.NameData{}, err
			}
			all = append(all, d.expectedRecords(c, keys)...)
		}
		_, of, _ = strings.Cut(of, ".")
	}
	var lines []string
	a := dns.NameData{}
	there := map[string]bool{} // two accounts mostly expect the same records
	for _, r := range all {
		line := r.zoneLine(sandboxTTL)
		switch {
		case strings.HasSuffix(r.Name, "."+name):
			a.Exists = true
		case r.Name == name && !there[line]:
			there[line] = true
			lines = append(lines, line)
		}
	}
	if len(lines) > 0 {
		a.Records, err = dns.ParseRecords(lines...)
	}
	return a, err
}

// hostRecords returns the records of the service's own names.
func (d *Domains) hostRecords(ctx context.Context, name string) ([]Record, error) {
	h := &Host{Name: d.Host, Addrs: d.Addrs}
	var err error
	if strings.HasSuffix(name, "._domainkey."+d.Host) {
		h.Key, err = ReadHostDKIMKey(ctx, d.DB)
	}
	all := h.expectedRecords(nil)
	return slices.DeleteFunc(all, func(r Record) bool { return strings.Contains(r.Value, addressPlaceholder) }), err
}
