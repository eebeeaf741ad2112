// SPDX-License-Identifier: Apache-2.0

package spam

import (
	"context"
	"errors"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/mailstead/mailstead/internal/address"
	"github.com/mailstead/mailstead/internal/digest"
	"github.com/mailstead/mailstead/internal/dns"
)

// listWeight is how many points a list has that says nothing else.
const listWeight = 3

// List is a DNS block list (RFC 5782).
type List struct {
	Zone   string
	Points float64
}

// ParseList reads a list: its zone, and after "=" how many points, -100 to 100,
// a client has that is on it.
func ParseList(text string) (List, error) {
	bad := errors.New("a block list is a domain such as zen.example.org, with =POINTS behind it if they are not 3")
	zone, weight, weighed := strings.Cut(text, "=")
	l := List{Points: listWeight}
	var err error
	if l.Zone, err = address.Hostname(strings.TrimSpace(zone)); err != nil {
		return l, bad
	}
	if weighed {
		if l.Points, err = strconv.ParseFloat(strings.TrimSpace(weight), 64); err != nil || !(l.Points >= -100 && l.Points <= 100) {
			return l, bad
		}
	}
	return l, nil
}

// Lists asks block lists about clients.
type Lists struct {
	DNS  *dns.Resolver
	All  []List
	Time time.Duration // for all of them together; 5 s if 0
}

// Look returns the lists that a client is on. One that does not answer in time
// says nothing.
func (l *Lists) Look(ctx context.Context, client netip.Addr) []digest.Reason {
	client = client.Unmap().WithZone("")
	if !client.IsValid() || client.IsPrivate() || client.IsLoopback() || client.IsLinkLocalUnicast() {
		return nil // no list knows them
	}
	ctx, cancel := context.WithTimeout(ctx, timeOr(l.Time, 5*time.Second))
	defer cancel()
	on := make([]bool, len(l.All))
	var asked sync.WaitGroup
	for n, list := range l.All {
		asked.Go(func() { on[n] = l.listed(ctx, reversed(client)+list.Zone) })
	}
	asked.Wait()
	var all []digest.Reason
	for n, list := range l.All {
		if on[n] {
			all = append(all, digest.Reason{Name: "DNSBL_" + symbol(list.Zone), Points: list.Points})
		}
	}
	return all
}

// listed reports whether a name has addresses that mean a listing: 127.0.0.2
// and above in 127.0.0.0/24 (RFC 5782 §2.1, §2.3). Lists answer others to
// say that they don't want to be asked, and where a list's domain expired
// whoever bought it answers anything.
func (l *Lists) listed(ctx context.Context, name string) bool {
	found, err := l.DNS.Family(ctx, name, true)
	if err != nil {
		return false
	}
	for _, a := range found.Records {
		if b := a.As16(); a.Is4() && b[12] == 127 && b[13] == 0 && b[14] == 0 && b[15] >= 2 {
			return true
		}
	}
	return false
}

// reversed is the name of an address below a list, with a dot at its end: its
// octets backwards, of IPv6 its nibbles (RFC 5782 §2.1, §2.4).
func reversed(a netip.Addr) string {
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
