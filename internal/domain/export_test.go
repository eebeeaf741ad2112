// SPDX-License-Identifier: Apache-2.0

package domain

import (
	"context"
	"time"
)

// Poll runs one poll.
func (d *Domains) Poll(ctx context.Context) (time.Duration, error) { return d.poll(ctx) }

// SetAfter replaces the timer of Run.
func (d *Domains) SetAfter(f func(time.Duration) <-chan time.Time) { d.after = f }

// Functions that parse text from the network.
var (
	TokensIn    = ownershipTokens
	CheckMTASTS = verifyMTASTS
	CheckTLSRPT = verifyTLSRPT
	Shown       = printableValues
)
