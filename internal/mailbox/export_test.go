// SPDX-License-Identifier: Apache-2.0

package mailbox

import (
	"context"
	"time"
)

// SetPause replaces the waiting after failed log-ins.
func (m *Mailboxes) SetPause(f func(context.Context, time.Duration) error) { m.pause = f }
