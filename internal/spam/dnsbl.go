// SPDX-License-Identifier: Apache-2.0

package spam

import (
	"cmp"
	"context"
	"errors"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/mailstead/mailstead/internal/address"
	"github.com/mailstead/mailstead/internal/dns"
	"github.com/mailstead/mailstead/internal/summary"
)

// defaultListPoints is the number of points of a list configured without points.
const defaultListPoints = 3

// BlockList is a DNS block list (RFC 5782).
type BlockList struct {
	Zone   string
	Points float64
}

// ParseBlockList parses a list: its zone, optionally followed by "=" and the points (-100 to 100)
// for a listed client.
func ParseBlockList(text string) (BlockList, error) {
	bad := errors.New("a block list is a domain such as zen.example.org, with =POINTS behind it if they are not 3")
	zone, weight, weighed := strings.Cut(text, "=")
	l := BlockList{Points: defaultListPoints}
	var err error
	if l.Zone, err = address.ParseHostname(strings.TrimSpace(zone)); err != nil {
		return l, bad
	}
	if weighed {
		if l.Points, err = strconv.ParseFloat(strings.TrimSpace(weight), 64); err != nil || !(l.Points >= -100 && l.Points <= 100) {
			return l, bad
		}
	}
	return l, nil
}

// BlockLists looks up clients in block lists.
type BlockLists struct {
	DNS     *dns.Resolver
	Lists   []BlockList
	Timeout time.Duration // for all lists together; 5 s if 0
}

// Lookup returns the lists that contain a client. It ignores lists that don't answer in time.
func (l *BlockLists) Lookup(ctx context.Context, client netip.Addr) []summary.SpamReason {
	client = client.Unmap().WithZone("")
	if !client.IsValid() || client.IsPrivate() || client.IsLoopback() || client.IsLinkLocalUnicast() {
		return nil // block lists don't cover these addresses
	}
	ctx, cancel := context.WithTimeout(ctx, cmp.Or(l.Timeout, 5*time.Second))
	defer cancel()
	on := make([]bool, len(l.Lists))
	var asked sync.WaitGroup
	for n, list := range l.Lists {
		asked.Go(func() { on[n] = l.isListed(ctx, reverseName(client)+list.Zone) })
	}
	asked.Wait()
	var all []summary.SpamReason
	for n, list := range l.Lists {
		if on[n] {
			all = append(all, summary.SpamReason{Name: "DNSBL_" + cleanSymbol(list.Zone), Points: list.Points})
		}
	}
	return all
}

// isListed reports whether a name has addresses that mean a listing: 127.0.0.2 and above in
// 127.0.0.0/24 (RFC 5782 §2.1, §2.3). Lists return other addresses to refuse queries. The new owner
// of a list's expired domain may return anything.
func (l *BlockLists) isListed(ctx context.Context, name string) bool {
	found, err := l.DNS.AddrsByFamily(ctx, name, true)
	if err != nil {
		return false
	}
	return slices.ContainsFunc(found.Records, func(a netip.Addr) bool {
		b := a.As16()
		return a.Is4() && b[12] == 127 && b[13] == 0 && b[14] == 0 && b[15] >= 2
	})
}

// reverseName returns the name of an address in a list, with a final dot: its octets in reverse
// order, or its nibbles for IPv6 (RFC 5782 §2.1, §2.4).
func reverseName(a netip.Addr) string {
	var b strings.Builder
	if a.Is4() {
		o := a.As4()
		for i := range o {
			b.WriteString(strconv.Itoa(int(o[3-i])) + ".")
		}
		return b.String()
	}
	const digits = "0123456789abcdef"
	o := a.As16()
	for i := range o {
		c := o[15-i]
		b.Write([]byte{digits[c&15], '.', digits[c>>4], '.'})
	}
	return b.String()
}
