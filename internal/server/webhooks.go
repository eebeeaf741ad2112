// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"crypto/x509"
	"time"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/egress"
	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/servicemail"
	"github.com/mailstead/mailstead/internal/webhook"
)

// openWebhooks creates the service that sends events to applications. The sequencer creates the
// deliveries in its own transaction.
func (s *Server) openWebhooks() error {
	mail := &servicemail.Sender{Users: s.Users, BaseURL: s.baseURL()}
	dialer, roots, err := s.customerDialer()
	if err != nil {
		return err
	}
	s.Webhooks = webhook.New(webhook.Options{
		DB: s.DB, Node: s.node, Hub: s.Hub, Events: s.Events, Key: s.key, Roots: roots, Version: Version, Now: time.Now, Log: s.Log,
		Dialer: dialer, DrainTimeout: s.Config.Drain,
		OwnsDomain: func(ctx context.Context, account, id db.ID) (bool, error) {
			_, err := s.Domains.Get(ctx, account, id)
			return exists(err)
		},
		OwnsMailbox: func(ctx context.Context, account, id db.ID) (bool, error) {
			_, err := s.Mailboxes.Get(ctx, account, id)
			return exists(err)
		},
		Disabled: mail.SendWebhookDisabled,
	})
	return nil
}

// customerDialer returns a dialer for hosts that customers choose, limited to the networks that
// webhooks may be sent to, and the certificate authorities to trust there.
func (s *Server) customerDialer() (*egress.Dialer, *x509.CertPool, error) {
	allow, err := s.Config.webhookNetworks()
	if err != nil {
		return nil, nil, err
	}
	roots, err := s.Config.trustedRoots()
	return &egress.Dialer{DNS: s.resolver, AllowNets: allow, OwnAddrs: s.Config.bindAddrs(), HostName: s.Config.Host}, roots, err
}

// exists reports whether a look-up with this error found a row.
func exists(err error) (bool, error) {
	if fault.Is(err, fault.NotFound) {
		return false, nil
	}
	return err == nil, err
}
