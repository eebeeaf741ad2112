// SPDX-License-Identifier: Apache-2.0

package mailbox

import (
	"context"
	"time"
)

// SetPause replaces the waiting after failed log-ins.
func (m *Mailboxes) SetPause(f func(context.Context, time.Duration) error) { m.Logins.Sleep = f }

// DropVerifiers is what Run does for SCRAM.
func (m *Mailboxes) DropVerifiers(ctx context.Context) error { return m.deleteVerifiers(ctx) }

// DropSessions is what Run does for sessions.
func (m *Mailboxes) DropSessions(ctx context.Context) error { return m.deleteStaleSessions(ctx) }

// CountRest, IndexRest and Correct are what Run does for what older releases left behind.
func (m *Mailboxes) CountRest(ctx context.Context) error { return m.countMissing(ctx) }
func (m *Mailboxes) IndexRest(ctx context.Context) error { return m.indexMissing(ctx) }
func (m *Mailboxes) Correct(ctx context.Context) error   { return m.correctStorage(ctx) }
