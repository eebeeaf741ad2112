// SPDX-License-Identifier: Apache-2.0

package outbound

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/mailstead/mailstead/internal/blob"
	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/message"
)

// Open opens the bytes of a message of an account, as it was composed or submitted; signatures are
// added only when it is sent. It returns fault.NotFound if the account has no such message, and
// fault.Denied for ClassService. The caller must Close the reader.
func (o *Messages) Open(ctx context.Context, account, id db.ID) (*blob.Reader, error) {
	r, err := o.loadOwned(ctx, account, id)
	if err != nil {
		return nil, err
	}
	if r.private {
		return nil, fault.New(fault.Denied, "service_message", "The service has written this to its recipient alone.")
	}
	b, err := o.loadBlob(ctx, r)
	if err != nil {
		return nil, err
	}
	return b.Open(ctx)
}

// loadBlob loads the bytes of a message. If the message is rescheduled meanwhile, it loads the new
// blob.
func (o *Messages) loadBlob(ctx context.Context, r *row) (*blob.Blob, error) {
	for {
		b, err := o.Blobs.Load(ctx, r.blob)
		if !errors.Is(err, blob.ErrNotExist) {
			return b, err
		}
		now, gone := o.loadOwned(ctx, r.account, r.id)
		if gone != nil {
			return nil, gone
		}
		if now.blob == r.blob {
			return nil, fmt.Errorf("message %s: %w", r.id, err)
		}
		r = now
	}
}

// isServiceMail reports whether the header marks the message as ClassService.
func isServiceMail(h message.Header) bool {
	return strings.HasPrefix(h.Unfolded("Feedback-ID"), ClassService+":")
}

// OpenParts is like Open, and also returns the index of the message's parts.
func (o *Messages) OpenParts(ctx context.Context, account, id db.ID) (*message.Structure, *blob.Reader, error) {
	in, err := o.Open(ctx, account, id)
	if err != nil {
		return nil, nil, err
	}
	index, _, err := message.ScanReader(in.All())
	if err != nil {
		_ = in.Close() // only read
		return nil, nil, fmt.Errorf("scanning message %s: %w", id, err)
	}
	return index, in, nil
}
