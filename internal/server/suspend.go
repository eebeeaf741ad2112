// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"time"

	"github.com/mailstead/mailstead/internal/account"
	"github.com/mailstead/mailstead/internal/domain"
	"github.com/mailstead/mailstead/internal/signal"
)

// suspendedLook is how often it is looked who is suspended: an operator's command
// beside a service on SQLite sends no signal, and one of another node may get lost.
const suspendedLook = 5 * time.Second

// endSuspended ends the sessions of accounts and domains that are suspended, also of
// those who idle, until ctx ends. What it reads is about those that are suspended, not
// about those that have sessions.
func (s *Server) endSuspended(ctx context.Context) error {
	sub := s.Hub.Subscribe(signal.Key{Kind: signal.Suspension})
	defer sub.Close()
	signal.Repeat(ctx, sub.C, func(ctx context.Context) (time.Duration, error) {
		accounts, err := account.SuspendedAccounts(ctx, s.DB)
		if err != nil {
			return suspendedLook, err
		}
		domains, err := domain.SuspendedDomains(ctx, s.DB)
		if err == nil && len(accounts)+len(domains) > 0 {
			s.imap.Suspended(accounts, domains)
		}
		return suspendedLook, err
	}, s.report("ending the sessions of who is suspended"))
	return nil
}
