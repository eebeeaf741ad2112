// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"time"

	"github.com/mailstead/mailstead/internal/cert"
	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/demo"
	"github.com/mailstead/mailstead/internal/lease"
	"github.com/mailstead/mailstead/internal/quota"
)

// DevConfig returns the configuration of `mailstead dev`.
func DevConfig(data string) Config {
	c := Config{
		Dev: true, Host: "mail.mailstead.test", Data: data, Bind: "127.0.0.1", PortBase: 10000, Database: "sqlite",
		TLS: "self-signed", SMTPPort: 25, DMARC: "enforce", SpamFail: "open", SpamTimeout: 20 * time.Second, Postmaster: "alice@" + demo.Domain, Node: "dev", MaxQuotaMB: 102400, Drain: 30 * time.Second, Lease: lease.DefaultDuration, DatabaseWait: db.DefaultOutageWait, LogLevel: "warn",
		KeepMessages: 30, KeepAttempts: 30, KeepThreads: 365, KeepEvents: 30, FirstDomainCheck: 250 * time.Millisecond,
	}
	c.setLimits(quota.Defaults())
	return c
}

// seedDemo creates the demonstration data of dev.
func (s *Server) seedDemo(ctx context.Context) (err error) {
	d := &demo.Service{
		Accounts: s.Accounts, Domains: s.Domains, Mailboxes: s.Mailboxes, Users: s.Users,
		File: s.data.File("dev.json"), BaseURL: s.baseURL(), CACert: cert.CAFile(s.data.Path), Ports: map[string]int{}, Log: s.Log,
	}
	for name := range standardPorts {
		d.Ports[name] = int(s.port(name))
	}
	s.Dev, err = d.Seed(ctx)
	return err
}
