// SPDX-License-Identifier: Apache-2.0

package folder

import (
	"bufio"
	"context"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"

	"github.com/mailstead/mailstead/internal/blob"
	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/mailbox"
	"github.com/mailstead/mailstead/internal/message"
	"github.com/mailstead/mailstead/internal/thread"
)

var setAnswersQuery = db.SQL(`UPDATE message SET reply_references = $2 WHERE id = $1`)

// referencesVersion starts the stored form, so that "no references" is not empty.
const referencesVersion = 1

// encodeReferences returns, in stored form, what a message refers to (RFC 5256 §3): the keys of the
// Message-IDs in References, or else of the first one in In-Reply-To.
func encodeReferences(h message.Header) []byte {
	ids := message.ParseMessageIDs(h.Unfolded("References"))
	if len(ids) == 0 {
		ids = message.ParseMessageIDs(h.Unfolded("In-Reply-To"))
		ids = ids[:min(len(ids), 1)]
	}
	b := append(make([]byte, 0, 1+8*len(ids)), referencesVersion)
	for _, id := range ids {
		b = binary.BigEndian.AppendUint64(b, uint64(messageKey(id)))
	}
	return b
}

// messageKey returns the key by which a Message-ID is compared, regardless of quoting.
func messageKey(id string) int64 {
	if strings.ContainsAny(id, `"\`) {
		id = strings.NewReplacer(`"`, "", `\`, "").Replace(id)
	}
	return thread.LookupKey(id)
}

// ThreadKeys returns the keys of Message-IDs by which THREAD connects messages that Fetch returned
// with FetchReferences: that of the message itself, 0 for none, and those that it refers to. known
// is false if the latter are not stored; FillReferences stores them.
func (r *MessageRow) ThreadKeys() (id int64, references []int64, known bool) {
	if ids := message.ParseMessageIDs(message.EnvelopeRawText(r.Envelope, message.EnvelopeMessageID)); len(ids) > 0 {
		id = messageKey(ids[0])
	}
	references, known = decodeReferences(r.referenceKeys)
	return id, references, known
}

// decodeReferences decodes the stored form. ok is false if there is none.
func decodeReferences(b []byte) (keys []int64, ok bool) {
	if len(b) == 0 || b[0] != referencesVersion {
		return nil, false
	}
	for b = b[1:]; len(b) >= 8; b = b[8:] {
		keys = append(keys, int64(binary.BigEndian.Uint64(b)))
	}
	return keys, true
}

// Limits of FillReferences.
const (
	referencesReadBatch     = 16 // messages
	referencesWriteBatch    = 512
	maxLoggedReferenceFails = 100
)

// FillReferences reads the references of messages that were stored without them, and stores
// them. It skips messages that can't be read.
func (v *View) FillReferences(ctx context.Context, uids []uint32) error {
	type unknown struct{ message, blob db.ID }
	var all []unknown
	err := v.Fetch(ctx, uids, FetchReferences, func(r *MessageRow) error {
		if _, ok := decodeReferences(r.referenceKeys); !ok {
			all = append(all, unknown{r.Message, r.BlobID})
		}
		return ctx.Err()
	})
	if err != nil {
		return err
	}
	unread := 0
	for part := range slices.Chunk(all, referencesWriteBatch) {
		var found []db.Statement
		for some := range slices.Chunk(part, referencesReadBatch) {
			blobs := make([]db.ID, len(some))
			for i := range some {
				blobs[i] = some[i].blob
			}
			loaded, err := v.store.Blobs.LoadAll(ctx, blobs)
			if err != nil {
				return err
			}
			for i, b := range loaded {
				answers, err := readReferences(ctx, b)
				if err == nil {
					found = append(found, setAnswersQuery.With(some[i].message, answers))
					continue
				}
				if !blob.IsLost(err) {
					return fmt.Errorf("reading what message %s answers: %w", some[i].message, err)
				}
				if unread++; unread <= maxLoggedReferenceFails {
					v.store.Log.Error("reading what a message answers", "folder", v.shared.id, "message", some[i].message, "error", err)
				}
			}
		}
		err := v.store.DB.Write(ctx, v.row.Mailbox, &db.Mutation{Guard: func(b *db.Batch) {
			b.Queue(mailbox.LockUsage(v.row.Mailbox))
			for _, s := range found {
				b.Queue(s)
			}
		}})
		if err != nil {
			return err
		}
	}
	return nil
}

// readReferences reads the references of a message.
func readReferences(ctx context.Context, b *blob.Blob) ([]byte, error) {
	if b == nil {
		return nil, blob.ErrNotExist
	}
	r, err := b.Open(ctx)
	if err != nil {
		return nil, err
	}
	defer r.Close() //nolint:errcheck // only read
	h, err := readHeader(r)
	return encodeReferences(h), err
}

// readHeader reads a header, up to the maximum size.
func readHeader(r *blob.Reader) (message.Header, error) {
	h, err := message.ReadHeader(bufio.NewReader(r.All()))
	if fault.Is(err, fault.TooLarge) {
		err = nil
	}
	return h, err
}
