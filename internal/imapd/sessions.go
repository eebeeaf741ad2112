// SPDX-License-Identifier: Apache-2.0

package imapd

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/mailstead/mailstead/internal/account"
	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/domain"
	"github.com/mailstead/mailstead/internal/notify"
)

// suspensionPollInterval is how often suspensions are read: on SQLite an operator's command sends
// no signal to a running service, and a signal of another node may get lost.
const suspensionPollInterval = 5 * time.Second

// Sessions is the registry of a server's open sessions. It is separate from Server because Mailboxes
// needs RecheckLogins, and Server needs Mailboxes. Use NewSessions to create one.
type Sessions struct {
	db  *db.DB
	hub *notify.Hub
	log *slog.Logger

	mu   sync.Mutex
	open map[*session]bool
}

// NewSessions returns an empty registry.
func NewSessions(d *db.DB, hub *notify.Hub, log *slog.Logger) *Sessions {
	return &Sessions{db: d, hub: hub, log: log, open: map[*session]bool{}}
}

// Run ends the sessions of suspended accounts and domains, including idle ones, until ctx ends. It
// reads the suspended accounts and domains, not those that have sessions.
func (s *Sessions) Run(ctx context.Context) error {
	sub := s.hub.Subscribe(notify.Key{Kind: notify.Suspension})
	defer sub.Close()
	notify.Repeat(ctx, sub.C, func(ctx context.Context) (time.Duration, error) {
		accounts, err := account.SuspendedAccounts(ctx, s.db)
		if err != nil {
			return suspensionPollInterval, err
		}
		domains, err := domain.SuspendedDomains(ctx, s.db)
		if err == nil && len(accounts)+len(domains) > 0 {
			s.recheck(func(u *sessionOwner) bool { return accounts[u.account] || domains[u.domain] })
		}
		return suspensionPollInterval, err
	}, func(err error) { s.log.Error("ending the sessions of who is suspended failed", "error", err) })
	return nil
}

func (s *Sessions) add(c *session) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open[c] = true
}

func (s *Sessions) remove(c *session) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.open, c)
}

// each calls f for each session. f must not block.
func (s *Sessions) each(f func(*session)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.open {
		f(c)
	}
}

// RecheckLogins makes the sessions of a mailbox, or all when it is 0, check whether their logins
// are still valid. The others end with BYE.
func (s *Sessions) RecheckLogins(mailbox db.ID) {
	s.recheck(func(u *sessionOwner) bool { return mailbox == 0 || u.mailbox == mailbox })
}

// sessionOwner identifies the owner of a session.
type sessionOwner struct{ mailbox, account, domain db.ID }

// recheck makes the sessions of some owners check whether their logins are still valid.
func (s *Sessions) recheck(of func(*sessionOwner) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.open {
		if u := c.user.Load(); u != nil && of(u) {
			c.needsLoginCheck.Store(true)
			c.stream.wake()
		}
	}
}
