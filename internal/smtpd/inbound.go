// SPDX-License-Identifier: Apache-2.0

package smtpd

import (
	"context"

	"github.com/mailstead/mailstead/internal/address"
	"github.com/mailstead/mailstead/internal/inbound"
)

// InboundBackend is the Backend of the MX server.
type InboundBackend struct{ Inbound *inbound.Service }

// Begin accepts any sender. Messages are checked once they are received.
func (r *InboundBackend) Begin(_ context.Context, e Envelope) (Transaction, error) {
	return inboundTransaction{r.Inbound.Begin(e.From, e.Size)}, nil
}

type inboundTransaction struct{ *inbound.Transaction }

// AddRecipient implements Transaction.
func (a inboundTransaction) AddRecipient(ctx context.Context, to address.Address, _ RcptOptions) error {
	return a.Transaction.AddRecipient(ctx, to)
}
