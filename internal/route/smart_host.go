// SPDX-License-Identifier: Apache-2.0

package route

import (
	"context"
	"errors"
	"net/netip"
	"net/url"
	"strconv"

	"github.com/mailstead/mailstead/internal/address"
	"github.com/mailstead/mailstead/internal/egress"
	"github.com/mailstead/mailstead/internal/smtpclient"
)

// SmartHost takes the mail for all destinations. It may have a private address, since the operator
// named it.
type SmartHost struct {
	Host   string // a name, or an IP address
	Port   uint16
	TLS    smtpclient.TLSMode
	Verify bool             // check its certificate
	Auth   *smtpclient.Auth // nil: no login
}

// ParseSmartHost parses smtp://[user:password@]host:port, or smtps:// for TLS from the first byte.
// With smtps, or if a password is sent to another machine, TLS is required and the certificate is
// checked. Otherwise TLS is used if the host offers it.
//
// The parameter verify=no, as in smtps://host:465?verify=no, accepts any certificate. verify=yes
// requires TLS with a valid one. Errors don't repeat the URL, which may hold a password.
func ParseSmartHost(u *url.URL) (*SmartHost, error) {
	port, err := strconv.ParseUint(u.Port(), 10, 16)
	if err != nil || port == 0 {
		return nil, errors.New("the relay needs a port from 1 to 65535, as in smtp://host:587")
	}
	s := &SmartHost{Host: u.Hostname(), Port: uint16(port)}
	ip, ipErr := netip.ParseAddr(s.Host)
	if ipErr != nil {
		if s.Host, err = address.ParseHostname(s.Host); err != nil {
			return nil, errors.New("the relay's host is neither a host name nor an IP address")
		}
	}
	if u.User != nil {
		password, ok := u.User.Password()
		if !ok || u.User.Username() == "" {
			return nil, errors.New("the relay needs both a user and a password, or neither")
		}
		s.Auth = &smtpclient.Auth{User: u.User.Username(), Password: password}
	}
	verify, err := parseVerify(u)
	if err != nil {
		return nil, err
	}
	here := s.Host == "localhost" || ipErr == nil && ip.IsLoopback()
	switch {
	case u.Scheme == "smtps":
		s.TLS, s.Verify = smtpclient.TLSImplicit, true
	case u.Scheme != "smtp":
		return nil, errors.New("the relay's URL must begin with smtp:// or smtps://")
	case s.Auth != nil && !here:
		s.TLS, s.Verify = smtpclient.TLSRequired, true
	}
	switch verify {
	case "no":
		s.Verify = false
	case "yes":
		s.Verify = true
		if s.TLS == smtpclient.TLSOpportunistic {
			s.TLS = smtpclient.TLSRequired
		}
	}
	return s, nil
}

// parseVerify returns the parameter verify, the only one that is allowed; "" if it is not there.
func parseVerify(u *url.URL) (string, error) {
	bad := errors.New("the relay's URL has a parameter other than verify=yes or verify=no")
	if u.Path != "" && u.Path != "/" || u.Fragment != "" {
		return "", errors.New("the relay's URL must end with the port, or with ?verify=yes or ?verify=no")
	}
	q, err := url.ParseQuery(u.RawQuery)
	if err != nil || len(q) > 1 || len(q["verify"]) > 1 {
		return "", bad
	}
	if len(q) == 0 {
		return "", nil
	}
	if v := q.Get("verify"); v == "yes" || v == "no" {
		return v, nil
	}
	return "", bad
}

// planSmartHost returns the plan for the smart host.
func (r *Router) planSmartHost(ctx context.Context) (Plan, error) {
	s := r.SmartHost
	addrs, err := r.smartHostAddrs(ctx)
	if err != nil {
		return Plan{}, errSmartHostDNS.withCause(err)
	}
	h := Host{Name: s.Host, TLS: s.TLS, Verify: s.Verify, Auth: s.Auth}
	if s.Verify {
		r.setRoots(&h)
	}
	for _, a := range addrs {
		h.Addrs = append(h.Addrs, netip.AddrPortFrom(a, s.Port))
	}
	return Plan{Hosts: []Host{h}, Via: "relay"}, nil
}

func (r *Router) smartHostAddrs(ctx context.Context) ([]netip.Addr, error) {
	if ip, err := netip.ParseAddr(r.SmartHost.Host); err == nil {
		return []netip.Addr{ip}, nil
	}
	if r.SmartHost.Host == "localhost" { // RFC 6761 §6.3: not a question for DNS
		return []netip.Addr{netip.IPv6Loopback(), netip.AddrFrom4([4]byte{127, 0, 0, 1})}, nil
	}
	res, err := r.DNS.Addrs(ctx, r.SmartHost.Host)
	if err != nil {
		return nil, err
	}
	addrs := egress.Interleave(append([]netip.Addr(nil), res.Records...))
	return addrs[:min(len(addrs), maxAddrsPerHost)], nil
}
