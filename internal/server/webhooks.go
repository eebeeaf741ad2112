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

// openWebhooks makes the room that sends events to applications. The sequencer
// makes the deliveries in its own transaction.
func (s *Server) openWebhooks() error {
	dialer, roots, err := s.outward()
	if err != nil {
		return err
	}
	s.Webhooks = webhook.New(webhook.Options{
		DB: s.DB, Node: s.node, Hub: s.Hub, Events: s.Events, Key: s.key, Roots: roots, Version: Version, Now: time.Now, Log: s.Log,
		Dialer: dialer, Drain: s.Config.Drain,
		OwnsDomain: func(ctx context.Context, account, id db.ID) (bool, error) {
			_, err := s.Domains.Get(ctx, account, id)
			return found(err)
		},
		OwnsMailbox: func(ctx context.Context, account, id db.ID) (bool, error) {
			_, err := s.Mailboxes.Get(ctx, account, id)
			return found(err)
		},
		Disabled: s.tellDisabled,
	})
	s.Events.Follow = append(s.Events.Follow, s.Webhooks.Follow)
	s.Events.Followed = append(s.Events.Followed, s.Webhooks.Followed)
	return nil
}

// tellDisabled writes to the people of an account who can mend a webhook.
func (s *Server) tellDisabled(ctx context.Context, w webhook.Webhook) error {
	members, err := s.Users.Members(ctx, w.Account)
	if err != nil {
		return err
	}
	why := "it answered 410 Gone, which asks for no more"
	if w.Reason == webhook.Failing {
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
		if m.Role == user.Reader {
			continue
		}
		err = errors.Join(err, s.Users.Notify(ctx, m.User, "A webhook was disabled", text))
	}
	return err
}

// outward returns what dials the hosts that customers name, where webhooks may
// be sent to, and the certificates that are trusted there.
func (s *Server) outward() (*egress.Dialer, *x509.CertPool, error) {
	allow, err := s.Config.webhookAllow()
	if err != nil {
		return nil, nil, err
	}
	roots, err := s.Config.roots()
	return &egress.Dialer{DNS: s.resolver, Allow: allow, Own: s.addresses(), Name: s.Config.Host}, roots, err
}

// found reports whether a look-up found something.
func found(err error) (bool, error) {
	if fault.Is(err, fault.NotFound) {
		return false, nil
	}
	return err == nil, err
}
