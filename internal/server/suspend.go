// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"time"

	"github.com/mailstead/mailstead/internal/account"
	"github.com/mailstead/mailstead/internal/domain"
	"github.com/mailstead/mailstead/internal/notify"
)

// suspensionPollInterval is how often suspensions are read: on SQLite an operator's command sends
// no signal to a running service, and a signal of another node may get lost.
const suspensionPollInterval = 5 * time.Second

// endSuspendedSessions ends the sessions of suspended accounts and domains, including idle ones,
// until ctx ends. It reads the suspended accounts and domains, not those that have sessions.
func (s *Server) endSuspendedSessions(ctx context.Context) error {
	sub := s.Hub.Subscribe(notify.Key{Kind: notify.Suspension})
	defer sub.Close()
	notify.Repeat(ctx, sub.C, func(ctx context.Context) (time.Duration, error) {
		accounts, err := account.SuspendedAccounts(ctx, s.DB)
		if err != nil {
			return suspensionPollInterval, err
		}
		domains, err := domain.SuspendedDomains(ctx, s.DB)
		if err == nil && len(accounts)+len(domains) > 0 {
			s.imapSessions.RecheckSuspended(accounts, domains)
		}
		return suspensionPollInterval, err
	}, s.logFailure("ending the sessions of who is suspended"))
	return nil
}
