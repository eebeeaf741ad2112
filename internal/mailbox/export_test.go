// SPDX-License-Identifier: Apache-2.0

package mailbox

import (
	"context"
	"time"
)

// SetPause replaces the waiting after failed log-ins.
func (m *Mailboxes) SetPause(f func(context.Context, time.Duration) error) { m.Logins.Pause = f }

// DropVerifiers is what Run does for SCRAM.
func (m *Mailboxes) DropVerifiers(ctx context.Context) error { return m.dropVerifiers(ctx) }

// DropSessions is what Run does for sessions.
func (m *Mailboxes) DropSessions(ctx context.Context) error { return m.dropSessions(ctx) }
