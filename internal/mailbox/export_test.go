// SPDX-License-Identifier: Apache-2.0

package mailbox

import (
	"context"
	"time"
)

// SetPause replaces the delay after failed logins.
func (m *Mailboxes) SetPause(f func(context.Context, time.Duration) error) { m.Logins.Sleep = f }

// DropVerifiers is the part of RunMaintenance for SCRAM.
func (m *Mailboxes) DropVerifiers(ctx context.Context) error { return m.deleteVerifiers(ctx) }

// DropSessions is the part of RunMaintenance for sessions.
func (m *Mailboxes) DropSessions(ctx context.Context) error { return m.deleteStaleSessions(ctx) }

// CountRest, IndexRest and Correct are the parts of RunMaintenance for rows of older releases.
func (m *Mailboxes) CountRest(ctx context.Context) error { return m.countMissing(ctx) }
func (m *Mailboxes) IndexRest(ctx context.Context) error { return m.indexMissing(ctx) }
func (m *Mailboxes) Correct(ctx context.Context) error   { return m.correctStorage(ctx) }
