// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"path/filepath"
	"slices"
	"time"

	"github.com/mailstead/mailstead/internal/address"
	"github.com/mailstead/mailstead/internal/cert"
	"github.com/mailstead/mailstead/internal/doctor"
	"github.com/mailstead/mailstead/internal/secret"
)

// DoctorOptions selects additional checks of RunDoctor.
type DoctorOptions struct {
	Deep  bool   // check all stored data, not a sample: reads the whole database
	Probe string // domain whose mail hosts to connect to; "" for none
}

// RunDoctor checks the service with these settings, running or stopped, without changing
// anything. If the settings are invalid it only reports that.
func RunDoctor(ctx context.Context, c Config, o DoctorOptions) []doctor.Finding {
	s, err := c.doctorService(o)
	settings := doctor.Run(ctx, []doctor.Check{{Name: "settings", Func: func(_ context.Context, r *doctor.Report) {
		switch {
		case err != nil:
			r.Fail("Correct it in the flags, the variables MAILSTEAD_… or the file of --config.", "mailstead serve does not start: %v", err)
		case c.Postmaster == "":
			r.Fail("Set it as a flag, as the variable MAILSTEAD_POSTMASTER, or in the file of --config.", "mailstead serve does not start: %v", errNoPostmaster)
		default:
			r.OK("those of %s, node %s", c.Host, c.Node)
		}
	}}})
	if err != nil {
		return settings
	}
	return slices.Concat(settings, doctor.Diagnose(ctx, s))
}

// doctorService returns the service to check. It returns the errors that serve returns before it
// changes anything.
func (c *Config) doctorService(o DoctorOptions) (s doctor.Service, err error) {
	if err := c.check(); err != nil {
		return s, err
	}
	if c.SecretKey != "" {
		if _, err := secret.ParseKey(c.SecretKey); err != nil {
			return s, fmt.Errorf("--secret-key: %w", err)
		}
	}
	if o.Probe != "" {
		if o.Probe, err = address.ParseDomain(o.Probe); err != nil {
			return s, errors.New("--probe must be a domain, such as example.org")
		}
	}
	s = doctor.Service{
		Host: c.Host, Postmaster: c.Postmaster, Data: c.Data, Blobs: c.Blobs, SQLite: c.Database == "sqlite", Database: c.databaseURL(), SecretKey: c.SecretKey,
		TrustDNSSEC: c.TrustResolver, Deep: o.Deep, Probe: o.Probe,
	}
	if c.PortBase != AnyPort {
		for _, name := range []string{"smtp", "submission", "submissions", "imap", "imaps", "http", "https"} {
			s.Listeners = append(s.Listeners, doctor.Listener{Name: name, Port: c.PortBase + standardPorts[name]})
		}
	}
	if s.Resolver, err = c.newCheckResolver(); err != nil {
		return s, err
	}
	if s.Router, err = c.newRouter(s.Resolver); err != nil {
		return s, err
	}
	if s.Bind, err = netip.ParseAddr(c.Bind); err != nil {
		return s, err
	}
	if s.ProxyNetworks, err = parsePrefixes("--proxy-from", c.ProxyFrom); err != nil {
		return s, err
	}
	if s.Filter, err = c.newSpamFilter(nil, nil); err != nil {
		return s, err
	}
	s.Certificate = doctor.Certificate{Kind: c.TLS, Host: c.Host, Roots: s.Router.Roots, Now: time.Now}
	switch c.TLS {
	case "acme":
		s.Certificate.Pair = cert.ACMEPair(filepath.Join(c.Data, "acme"), c.ACMEDirectory, c.Host)
	case "self-signed":
		s.Certificate.Pair = cert.SelfSignedPair(c.Data)
	default:
		s.Certificate.Kind = "files"
		s.Certificate.Pair, err = c.certificateFiles()
	}
	return s, err
}
