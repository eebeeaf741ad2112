// SPDX-License-Identifier: Apache-2.0

package smtpd

import (
	"context"

	"github.com/mailstead/mailstead/internal/inbound"
)

// Incoming is the Receiver of the MX door.
type Incoming struct{ Inbound *inbound.Inbound }

// Begin takes any sender: what it sends is judged once it is here.
func (r *Incoming) Begin(_ context.Context, e Envelope) (Transaction, error) {
	return r.Inbound.Begin(e.From, e.Size), nil
}
