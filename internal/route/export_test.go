// SPDX-License-Identifier: Apache-2.0

package route

import "context"

// Refresh runs one round of Run.
func (s *STSResolver) Refresh(ctx context.Context) error { return s.refresh(ctx) }

// MaxWaiting is the maximum number of callers that wait for policies.
const MaxWaiting = maxFetchWaiters

// Waiting returns how many callers wait for policies now.
func (s *STSResolver) Waiting() int { return len(s.waitSlots) }
