// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"time"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/egress"
	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/webhook"
)

// openWebhooks makes the room that sends events to applications. The sequencer
// makes the deliveries in its own transaction.
func (s *Server) openWebhooks() error {
	allow, err := s.Config.webhookAllow()
	if err != nil {
		return err
	}
	roots, err := s.Config.roots()
	if err != nil {
		return err
	}
	s.Webhooks = webhook.New(webhook.Options{
		DB: s.DB, Node: s.node, Hub: s.Hub, Events: s.Events, Key: s.key, Roots: roots, Version: Version, Now: time.Now, Log: s.Log,
		Dialer: &egress.Dialer{DNS: s.resolver, Allow: allow, Own: s.addresses(), Name: s.Config.Host},
		Drain:  s.Config.Drain,
		OwnsDomain: func(ctx context.Context, account, id db.ID) (bool, error) {
			_, err := s.Domains.Get(ctx, account, id)
			return found(err)
		},
		OwnsMailbox: func(ctx context.Context, account, id db.ID) (bool, error) {
			_, err := s.Mailboxes.Get(ctx, account, id)
			return found(err)
		},
	})
	s.Events.Follow = append(s.Events.Follow, s.Webhooks.Follow)
	s.Events.Followed = append(s.Events.Followed, s.Webhooks.Followed)
	return nil
}

// found reports whether a look-up found something.
func found(err error) (bool, error) {
	if fault.Is(err, fault.NotFound) {
		return false, nil
	}
	return err == nil, err
}
