// SPDX-License-Identifier: Apache-2.0

package route

import "context"

// Refresh is one round of Run.
func (s *STSResolver) Refresh(ctx context.Context) error { return s.refresh(ctx) }

// MaxWaiting is how many may wait for policies at the same time.
const MaxWaiting = maxFetchWaiters

// Waiting is how many wait for policies now.
func (s *STSResolver) Waiting() int { return len(s.waitSlots) }
