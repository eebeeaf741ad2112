// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"time"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/egress"
	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/user"
	"github.com/mailstead/mailstead/internal/webhook"
)

// openWebhooks creates the service that sends events to applications. The sequencer creates the
// deliveries in its own transaction.
func (s *Server) openWebhooks() error {
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
		Disabled: s.notifyWebhookDisabled,
	})
	s.Events.OnNumbering = append(s.Events.OnNumbering, s.Webhooks.CreateDeliveries)
	s.Events.AfterNumbering = append(s.Events.AfterNumbering, s.Webhooks.WakeDeliveries)
	return nil
}

// notifyWebhookDisabled sends mail to the account's members who can fix a webhook.
func (s *Server) notifyWebhookDisabled(ctx context.Context, w webhook.Webhook) error {
	members, err := s.Users.Members(ctx, w.Account)
	if err != nil {
		return err
	}
	why := "it answered 410 Gone, which asks for no more"
	if w.Reason == webhook.ReasonFailing {
		why = "every attempt failed since " + w.FailingSince.UTC().Format("2006-01-02 15:04 UTC")
	}
	text := fmt.Sprintf(`Events are no longer sent to this webhook:

%s

It was disabled because %s. What happens from now on is not sent there.

When the receiver works again, enable the webhook. What waited then goes on,
and a replay sends what happened meanwhile:

%s/webhooks/%s
`, w.URL, why, s.baseURL(), w.ID)
	for _, m := range members {
		if m.Role == user.RoleReader {
			continue
		}
		err = errors.Join(err, s.Users.Notify(ctx, m.User, "A webhook was disabled", text))
	}
	return err
}

// customerDialer returns a dialer for hosts that customers choose, limited to the networks that
// webhooks may be sent to, and the certificate authorities to trust there.
func (s *Server) customerDialer() (*egress.Dialer, *x509.CertPool, error) {
	allow, err := s.Config.webhookNetworks()
	if err != nil {
		return nil, nil, err
	}
	roots, err := s.Config.trustedRoots()
	return &egress.Dialer{DNS: s.resolver, AllowNets: allow, OwnAddrs: s.ownAddrs(), HostName: s.Config.Host}, roots, err
}

// exists reports whether a look-up with this error found a row.
func exists(err error) (bool, error) {
	if fault.Is(err, fault.NotFound) {
		return false, nil
	}
	return err == nil, err
}
