// SPDX-License-Identifier: Apache-2.0

package outbound

import (
	"context"
	"crypto/sha256"
	"fmt"

	"github.com/mailstead/mailstead/internal/blob"
	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/idempotency"
	"github.com/mailstead/mailstead/internal/message"
)

// smtpKeyPath is the path under which the idempotency keys of submissions are stored.
const smtpKeyPath = "smtp"

// idempotentSubmit makes a submission with an idempotency key take effect once. The zero value is
// for a submission without a key.
type idempotentSubmit struct {
	claim       *idempotency.Claim
	fingerprint [sha256.Size]byte
	id          db.ID // message accepted before under the key; 0 for none
	guard       func(*db.Batch)
}

// claimIdempotencyKey claims the idempotency key of a submission by an API key, and looks up the
// message accepted under it. If there is none, the caller releases the claim. The body of raw
// begins at offset body.
func (o *Outbox) claimIdempotencyKey(ctx context.Context, r *row, s *Submission, by db.ID, key string, raw *blob.Blob, body int64, h message.Header) (c idempotentSubmit, err error) {
	if key == "" {
		return c, nil
	}
	source, err := raw.Open(ctx)
	if err != nil {
		return c, err
	}
	defer source.Close() //nolint:errcheck // only read
	if c.fingerprint, err = s.fingerprint(source, h, body, raw.Size); err != nil {
		return c, err
	}
	if c.claim, err = o.Keys.Claim(r.account, idempotency.APIKeyPrincipal(by), smtpKeyPath, key); err != nil {
		return c, idempotencyError(err)
	}
	if c.id, err = c.acceptedID(ctx); err != nil || c.id != 0 {
		c.claim.Release()
		return c, err
	}
	answer := []byte(r.id.String())
	c.guard = func(b *db.Batch) { c.claim.StoreResponse(b, c.fingerprint, answer) }
	return c, nil
}

// acceptedID returns the message accepted under the key, or 0.
func (c *idempotentSubmit) acceptedID(ctx context.Context) (db.ID, error) {
	answer, err := c.claim.LoadResponse(ctx, c.fingerprint)
	if err != nil || answer == nil {
		return 0, idempotencyError(err)
	}
	id, err := db.ParseID(string(answer))
	if err != nil {
		return 0, fmt.Errorf("an answer under an idempotency key can't be read: %w", err)
	}
	return id, nil
}
