// SPDX-License-Identifier: Apache-2.0

package folder

import (
	"context"
	"errors"

	"github.com/mailstead/mailstead/internal/blob"
	"github.com/mailstead/mailstead/internal/message"
)

var errNotBuilt = errors.New("not built yet")

// Description is what is stored of a message beside its bytes, so that lists
// and searches need not read these.
type Description struct {
	MessageID string // with its angle brackets; "" for none
	Envelope  []byte // as IMAP shows it (message.AppendEnvelope)
	Structure []byte // message.Index in its stored form
}

// Describe scans a message. Its bytes must be final, head and all.
func Describe(ctx context.Context, b *blob.Blob) (Description, error) {
	return Description{}, errNotBuilt
}

// Described makes the description of a message that was scanned already.
func Described(h message.Header, ix *message.Index) (Description, error) {
	return Description{}, errNotBuilt
}
