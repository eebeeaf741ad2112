// SPDX-License-Identifier: Apache-2.0

package imapd

import (
	"sync"

	"github.com/mailstead/mailstead/internal/db"
)

// Sessions is the registry of a server's open sessions. It is separate from Server because Mailboxes
// needs RecheckLogins, and Server needs Mailboxes. Use NewSessions to create one.
type Sessions struct {
	mu   sync.Mutex
	open map[*session]bool
}

// NewSessions returns an empty registry.
func NewSessions() *Sessions { return &Sessions{open: map[*session]bool{}} }

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

// RecheckSuspended is RecheckLogins for the mailboxes of accounts and of domains.
func (s *Sessions) RecheckSuspended(accounts, domains map[db.ID]bool) {
	s.recheck(func(u *sessionOwner) bool { return accounts[u.account] || domains[u.domain] })
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
