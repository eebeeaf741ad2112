// SPDX-License-Identifier: Apache-2.0

package route

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"time"

	"github.com/mailstead/mailstead/internal/egress"
)

// policyHostPrefix, before a domain's name, makes the name of its policy host.
const policyHostPrefix = "mta-sts."

// fetch fetches a domain's policy from its policy host (RFC 8461 §3.3). The publisher is not
// trusted: fetch checks the certificate, follows no redirects, and dials only addresses that mail
// may go to.
func (s *STSResolver) fetch(ctx context.Context, domain string) (*STSPolicy, error) {
	host := policyHostPrefix + domain
	transport := &http.Transport{
		DialContext:            func(ctx context.Context, _, _ string) (net.Conn, error) { return s.dial(ctx, host) },
		TLSClientConfig:        &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: s.opts.Roots, ServerName: host},
		DisableKeepAlives:      true,
		DisableCompression:     true,
		MaxResponseHeaderBytes: 64 << 10,
	}
	defer transport.CloseIdleConnections()
	client := http.Client{
		Transport:     transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	where := host
	if s.opts.Port != 443 {
		where = net.JoinHostPort(host, strconv.Itoa(int(s.opts.Port)))
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+where+"/.well-known/mta-sts.txt", nil)
	if err != nil {
		return nil, err
	}
	resp, err := client.Do(r)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close() //nolint:errcheck // only read
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("the policy host answers with status %d", resp.StatusCode)
	}
	if kind, _, err := mime.ParseMediaType(resp.Header.Get("Content-Type")); err != nil || kind != "text/plain" {
		return nil, errors.New("the policy is not text/plain")
	}
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxPolicySize+1))
	if err != nil {
		return nil, err
	}
	return ParseSTSPolicy(string(text))
}

// dial connects to a policy host, trying one address after the other.
func (s *STSResolver) dial(ctx context.Context, host string) (net.Conn, error) {
	res, err := s.opts.DNS.Addrs(ctx, host)
	if err != nil {
		return nil, err
	}
	addrs := egress.Interleave(slices.DeleteFunc(slices.Clone(res.Records), func(a netip.Addr) bool {
		return !egress.IsAllowed(a, s.opts.AllowNets)
	}))
	err = errors.New("the policy host has no address that may be dialled")
	for _, a := range addrs[:min(len(addrs), maxAddrsPerHost)] {
		d := net.Dialer{Timeout: 10 * time.Second}
		var nc net.Conn
		if nc, err = d.DialContext(ctx, "tcp", netip.AddrPortFrom(a, s.opts.Port).String()); err == nil {
			return nc, nil
		}
	}
	return nil, err
}
