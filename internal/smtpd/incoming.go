// SPDX-License-Identifier: Apache-2.0

package smtpd

import (
	"context"

	"github.com/mailstead/mailstead/internal/address"
	"github.com/mailstead/mailstead/internal/inbound"
)

// Incoming is the Receiver of the MX door.
type Incoming struct{ Inbound *inbound.Inbound }

// Begin takes any sender: what it sends is judged once it is here.
func (r *Incoming) Begin(_ context.Context, e Envelope) (Transaction, error) {
	return arriving{r.Inbound.Begin(e.From, e.Size)}, nil
}

type arriving struct{ *inbound.Letter }

// Recipient is that of Transaction.
func (a arriving) Recipient(ctx context.Context, to address.Address, _ Wants) error {
	return a.Letter.Recipient(ctx, to)
}
