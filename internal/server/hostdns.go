// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"time"

	"github.com/mailstead/mailstead/internal/datadir"
	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/dns"
	"github.com/mailstead/mailstead/internal/doctor"
	"github.com/mailstead/mailstead/internal/domain"
	"github.com/mailstead/mailstead/internal/egress"
	"github.com/mailstead/mailstead/internal/secret"
)

// HostNames returns the service's own names with these settings, to check and print their DNS
// records. Before the service has run, they have no DKIM key.
func HostNames(ctx context.Context, c Config) (*domain.Host, error) {
	if err := c.check(); err != nil {
		return nil, err
	}
	resolver, err := c.newCheckResolver()
	if err != nil {
		return nil, err
	}
	h := &domain.Host{Name: c.Host, Resolver: resolver, Addrs: c.senderAddrs(), UsesSmartHost: c.usesSmartHost()}
	h.Key, err = c.hostKey(ctx)
	return h, err
}

// newCheckResolver returns a resolver for commands that check records. Its timeout is shorter than
// the service's, which may wait longer for mail.
func (c *Config) newCheckResolver() (*dns.Resolver, error) {
	zones, err := c.resolverZones()
	if err != nil {
		return nil, err
	}
	return dns.New(dns.Config{Server: c.Resolver, Zones: zones, TrustAD: c.TrustResolver, Timeout: 4 * time.Second})
}

// hostKey reads the DKIM key of the service's own name, or generates it. It returns nil before
// the first start of the service.
func (c *Config) hostKey(ctx context.Context) (*domain.HostDKIMKey, error) {
	if err := c.checkInitialized(ctx); errors.Is(err, errNotInitialized) {
		return nil, nil
	} else if err != nil {
		return nil, err
	}
	d, err := db.Open(ctx, db.Options{URL: c.databaseURL()})
	if err != nil {
		return nil, err
	}
	k, err := domain.ReadHostDKIMKey(ctx, d)
	if err == nil && k == nil {
		var seal *secret.Key
		if seal, err = datadir.ReadKey(c.Data, c.SecretKey); err == nil {
			k, err = domain.New(domain.Options{DB: d, Key: seal, Host: c.Host, Now: time.Now}).HostDKIMKey(ctx)
		}
	}
	return k, errors.Join(err, d.Close())
}

// senderAddrs returns the addresses that the service sends mail from and is reachable at, as far
// as this machine knows: none behind NAT. In the sandbox it is the sandbox's own.
func (c *Config) senderAddrs() []netip.Addr {
	if c.Dev {
		return c.bindAddrs()
	}
	all, err := doctor.MachineAddrs()
	if err != nil {
		return nil // DNS lists some
	}
	return slices.DeleteFunc(all, func(a netip.Addr) bool { return !egress.IsPublic(a) })
}

// bindAddrs returns the address to listen on, unless that means all.
func (c *Config) bindAddrs() []netip.Addr {
	bind, err := netip.ParseAddr(c.Bind)
	if err != nil || bind.IsUnspecified() {
		return nil
	}
	return []netip.Addr{bind.Unmap()}
}
